"""Follows ``metrics.jsonl`` as a run writes it; a damaged line is counted and left out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MetricsFile", "Series"]

Series = list[tuple[float, float]]  # step, value
Row = dict[str, Any]  # Any: json; step and role are right
_TAIL = 4096  # bytes by which a file is known again


@dataclass
class _Found:
    """The values of one metric, and how many rows were looked at for them."""

    num_rows: int = 0
    values: dict[float, float] = field(default_factory=dict)
    points: Series = field(default_factory=list)


class MetricsFile:
    """The rows that are there, read from where the last reading ended.

    Args:
        path: of the file, which need not be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self._place = self.num_damaged = self._num_named = 0
        self._tail = b""  # what stands before the place
        self.rows: list[Row] = []
        self._names: dict[str, None] = {}
        self._found: dict[tuple[str, str | None], _Found] = {}

    def follow(self) -> None:
        """Read what is new; all anew where the file was cut back, whatever came after that."""
        try:
            content = self._read()
        except OSError:
            return
        whole = content.rfind(b"\n") + 1
        self._place += whole
        self._tail = (self._tail + content[:whole])[-_TAIL:]
        for line in content[:whole].splitlines():
            row = _row(line)
            if row is None:
                self.num_damaged += 1
            else:
                self.rows.append(row)

    def _read(self) -> bytes:
        with self._path.open("rb") as file:
            file.seek(self._place - len(self._tail))
            content = file.read()
            if not content.startswith(self._tail):
                self._begin()
                file.seek(0)
                content = file.read()
        return content[len(self._tail) :]

    def series(self, *names: str, role: str | None = None) -> Series:
        """Return the values of the first name that has any; the last one a step."""
        for name in names:
            points = self._points(name, role)
            if points:
                return points
        return []

    def _points(self, name: str, role: str | None) -> Series:
        found = self._found.setdefault((name, role), _Found())
        for row in self.rows[found.num_rows :]:
            value = row.get(name)
            if isinstance(value, (int, float)) and role in {None, row["role"]}:
                found.values[row["step"]] = value
        if found.num_rows < len(self.rows):
            found.num_rows, found.points = len(self.rows), sorted(found.values.items())
        return found.points

    def names(self, prefix: str, ends: str = "") -> list[str]:
        """Return the names of metrics that begin and end so, in the order they came."""
        for row in self.rows[self._num_named :]:
            self._names |= dict.fromkeys(row)
        self._num_named = len(self.rows)
        return [name for name in self._names if name.startswith(prefix) and name.endswith(ends)]


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_row = isinstance(row, dict) and isinstance(row.get("role"), str)
    return row if is_row and _is_number(row.get("step")) else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
