"""Write metrics as one JSON object a line."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["JsonlMonitor", "read_metrics"]

FILE_NAME = "metrics.jsonl"


class JsonlMonitor:
    """Appends ``{"step": 3, "role": "trainer", "actor/loss": 0.1, ...}`` to ``metrics.jsonl``.

    A number that JSON cannot hold (NaN, infinity) is written as ``null``.
    """

    def __init__(self, *, directory: Path, role: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._role = role
        self._file = (directory / FILE_NAME).open("a", encoding="utf-8")

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Write one line and hand it to the operating system."""
        numbers = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        row = {"step": step, "role": self._role, **numbers}
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(directory: Path, *, role: str | None = None) -> list[dict[str, float]]:
    """Return the rows of a ``metrics.jsonl``; a line cut short by a kill is left out."""
    path = directory / FILE_NAME
    if not path.exists():
        return []
    rows: list[dict[str, float]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # only the last line of a killed run can be half a line
        if role is None or row.get("role") == role:
            rows.append(row)
    return rows
