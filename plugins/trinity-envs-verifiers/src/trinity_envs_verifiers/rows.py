"""Write a row for each task: ``python -m trinity_envs_verifiers.rows TASKSET FILE``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import TrinityError

from trinity_envs_verifiers.child_process import child_of, close_children
from trinity_envs_verifiers.settings import VerifiersSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "write_rows"]


def write_rows(settings: VerifiersSettings, file: Path, *, limit: int | None) -> int:
    """Write the rows, and return how many there are.

    Args:
        settings: of the taskset.
        file: of JSON lines.
        limit: how many; None: all, of a taskset that ends.

    Raises:
        EnvError: verifiers cannot load the taskset.
    """
    try:
        rows = child_of(settings).ask("rows", {"limit": limit})[1].result()
    finally:
        close_children()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return len(rows)


def main(words: Sequence[str] | None = None) -> int:
    """Write the rows; return the exit code."""
    parser = argparse.ArgumentParser(prog="trinity_envs_verifiers.rows", description=__doc__)
    parser.add_argument("taskset")
    parser.add_argument("file", type=Path)
    parser.add_argument("--config", type=json.loads, default={}, help="of the taskset, as JSON")
    parser.add_argument("--limit", type=int, help="how many; all without it")
    given = parser.parse_args(words)
    try:
        settings = VerifiersSettings.of({"taskset": given.taskset, "config": given.config})
        count = write_rows(settings, given.file, limit=given.limit)
    except TrinityError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{given.file}: {count} rows\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
