"""The experiences that the weights were trained on, step by step.

``history.jsonl`` in the run directory has one line an optimizer step::

    {"step": 3, "eids": ["2/0/0/0", "2/0/1/0", "2/1/0/0", "2/1/1/0"]}

It is cut back together with the weights (``rewind.py``), so it is always the history of those that
there are: the last line of a run that was killed may be of a step that is trained again.
"""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

from trinity.common.json_lines import read_lines
from trinity.errors import CheckpointError
from trinity.runtime.observers import Observer
from trinity.runtime.record.records import HistoryLine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity.common.experience import Experience

FILE_NAME = "history.jsonl"


class TrainedHistory(Observer):
    """Writes the history of one stage."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def trained(self, step: int, experiences: Sequence[Experience]) -> None:
        """Add an optimizer step: one line in one write, so that a kill leaves it out or whole."""
        eids = [experience.eid.uid for experience in experiences]
        line = (json.dumps({"step": step, "eids": eids}) + "\n").encode()
        try:
            append_whole(self._path, line)
        except OSError as error:
            raise CheckpointError(
                f"{self._path} cannot be written: {error.strerror or error}. Make room, then run "
                f"the same command: it goes on from the last complete checkpoint."
            ) from error


def append_whole(path: Path, data: bytes) -> None:
    """Append in one write, so that a kill leaves it out or whole; on a full disk nothing is left.

    Raises:
        OSError: it cannot be written.
    """
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        try:
            if file.write(data) < len(data):  # the disk holds only the beginning of it
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            file.truncate(size)
            raise


def read_history(directory: Path) -> list[list[str]]:
    """Return the ids of each optimizer step's experiences, in the order they were trained in.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = directory / FILE_NAME
    return [row["eids"] for row in read_lines(path, HistoryLine)] if path.exists() else []
