"""Set the data up without Trinity's command line: python -m trinity_envs_webshop --data FOLDER."""

from __future__ import annotations

import argparse
import sys

from trinity.errors import TrinityError

from trinity_envs_webshop.assets import fetch


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="trinity_envs_webshop", description=fetch.__doc__)
    parser.add_argument("--data", help="the folder; else the one that WEBSHOP_DATA names")
    parser.add_argument(
        "--generate", metavar="N", help="make a catalogue of N products there first"
    )
    given = parser.parse_args()
    try:
        fetch(data=given.data, generate=given.generate)
    except TrinityError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
