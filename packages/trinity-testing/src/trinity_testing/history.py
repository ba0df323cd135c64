"""Read which experiences a run trained, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.monitor.jsonl import read_lines
from trinity.runtime.record.records import HistoryLine
from trinity.runtime.record.samples import HISTORY

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_history"]


def read_history(directory: Path) -> list[list[str]]:
    """Return the ids of each optimizer step's experiences, in the order they were trained in.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = directory / HISTORY
    return [row["eids"] for row in read_lines(path, HistoryLine)] if path.exists() else []
