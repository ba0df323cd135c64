"""What is known of the file that a configuration was read from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Source"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the values of a configuration were written.

    Attributes:
        file: the file as the user named it; empty for a configuration made in Python.
        lines: line of each key that the file holds, by dotted path.
        overrides: paths that the command line set.
        moved: ``(path now, path in the file)`` of sections that were moved, applied in order.
    """

    file: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    overrides: frozenset[str] = frozenset()
    moved: tuple[tuple[str, str], ...] = ()

    def written(self, path: str) -> str:
        """Return the path as the file has it: a stage's sections stand below ``stages.N``."""
        for now, before in self.moved:
            if path == now or path.startswith(f"{now}."):
                path = f"{before}{path.removeprefix(now)}"
        return path

    def place(self, path: str) -> str:
        """Return ``path (file:line)``, or what of it is known."""
        path = self.written(path)
        where = self.where(path)
        return f"{path} ({where})" if where else path

    def where(self, path: str) -> str:
        """Return who wrote a path: ``file:line``, ``command line`` or nothing."""
        path = self.written(path)
        if any(path == p or path.startswith(f"{p}.") for p in self.overrides):
            return "command line"
        line = self.lines.get(path)
        return f"{self.file}:{line}" if line else ""

    def with_moves(self, *moved: tuple[str, str]) -> Source:
        """Return what is known after sections were moved once more."""
        return replace(self, moved=(*moved, *self.moved))
