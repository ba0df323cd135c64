"""Write metrics as one JSON object a line."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from trinity.common.json_lines import append_whole, read_lines
from trinity.common.ports import Monitor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE_NAME = "metrics.jsonl"


class JsonlMonitor(Monitor):
    """Appends ``{"step": 3, "role": "trainer", "actor/loss": 0.1, ...}`` to ``metrics.jsonl``.

    A number that JSON cannot hold (NaN, infinity) is written as ``null``.
    """

    def __init__(self, *, directory: Path, role: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._role = role
        self._path = directory / FILE_NAME
        self._written = 0, 0  # where the last line stands

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        numbers = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        row = {**numbers, "step": step, "role": self._role}
        line = (json.dumps(row, allow_nan=False) + "\n").encode()
        end = append_whole(self._path, line)  # after the lines of the other roles
        self._written = end - len(line), end

    def last_logged(self) -> tuple[int, Mapping[str, float | None]] | None:
        start, end = self._written
        with self._path.open("rb") as file:
            file.seek(start)
            row = json.loads(file.read(end - start) or b'{"step": 0}')
        return row.pop("step"), row


class MetricsLine(BaseModel):
    """A line of ``metrics.jsonl``: numbers by name; null is one that JSON cannot hold."""

    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, float | bool | None] = Field(init=False)
    step: int | float
    role: str


def read_metrics(directory: Path, *, role: str | None = None) -> list[dict[str, float]]:
    """Return the rows of a ``metrics.jsonl``; a line cut short by a kill is left out.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = directory / FILE_NAME
    rows = read_lines(path, MetricsLine) if path.exists() else []
    return [row for row in rows if role is None or row["role"] == role]
