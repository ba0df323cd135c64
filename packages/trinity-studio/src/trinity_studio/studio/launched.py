"""What a run begins as: a process of its own that says who it is, then becomes ``trinity run``."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from trinity.runtime.record.lock import Owner

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Write down this process, and become the command.

    A process that is started in the background may be deaf to Ctrl-C; a run has to hear it.

    Args:
        arguments: the file to write, then what follows ``trinity``.
    """
    file, *command = arguments
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    unfinished = Path(f"{file}.new")
    unfinished.write_text(json.dumps(asdict(Owner.of_this_process())), encoding="utf-8")
    unfinished.replace(file)
    os.execv(sys.executable, [sys.executable, "-m", "trinity", *command])


if __name__ == "__main__":
    main(sys.argv[1:])
