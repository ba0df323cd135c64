"""Follows ``metrics.jsonl`` as a run writes it; a damaged line is counted and left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MetricsFile", "Series"]

Series = list[tuple[float, float]]  # step, value
Row = dict[str, Any]  # Any: json; step and role are right


class MetricsFile:
    """The rows that are there, read from where the last reading ended.

    Args:
        path: of the file, which need not be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self.rows: list[Row] = []
        self.num_damaged = 0

    def follow(self) -> None:
        """Read what is new; all anew where the file was cut back."""
        try:
            size = self._path.stat().st_size
            if size < self._place:
                self._place, self.num_damaged = 0, 0
                self.rows = []
            if size == self._place:
                return
            with self._path.open("rb") as file:
                file.seek(self._place)
                content = file.read()
        except OSError:
            return
        whole = content.rfind(b"\n") + 1
        self._place += whole
        for line in content[:whole].splitlines():
            row = _row(line)
            if row is None:
                self.num_damaged += 1
            else:
                self.rows.append(row)

    def series(self, *names: str, role: str | None = None) -> Series:
        """Return the values of the first name that has any; the last one a step."""
        for name in names:
            points = {
                row["step"]: row[name]
                for row in self.rows
                if isinstance(row.get(name), (int, float)) and role in {None, row["role"]}
            }
            if points:
                return sorted(points.items())
        return []

    def names(self, prefix: str, ends: str = "") -> list[str]:
        """Return the names of metrics that begin and end so, in the order they came."""
        found = (name for row in self.rows for name in row)
        chosen = (name for name in found if name.startswith(prefix) and name.endswith(ends))
        return list(dict.fromkeys(chosen))

    def latest(self, role: str) -> Row:
        """Return the last row of a role; empty: there is none."""
        return next((row for row in reversed(self.rows) if row["role"] == role), {})


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_row = isinstance(row, dict) and isinstance(row.get("role"), str)
    return row if is_row and _is_number(row.get("step")) else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
