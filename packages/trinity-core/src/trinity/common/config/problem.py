"""What is wrong with a configuration, and where its values were written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from trinity.errors import ConfigError, NotSupportedYetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Severity = Literal["error", "not_yet", "open", "notice"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong: where it was said, what it is, what to do now.

    ``severity`` is ``error``, ``not_yet`` for a published setting whose feature does not exist,
    ``open`` for what may still be filled in before the run begins, or ``notice`` for what stops
    nothing.
    """

    path: str
    message: str
    remedy: str = ""
    where: str = ""  # file:line, or "command line"
    severity: Severity = "error"

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f" {self.remedy}" if self.remedy else ""
        return f"{place}{self.path}: {self.message}{remedy}"


def listed(problems: Iterable[Problem]) -> list[str]:
    """Return one line for each problem, in the order of the file, none of them twice."""
    return list(dict.fromkeys(str(p) for p in sorted(problems, key=_position)))


def config_error(problems: Sequence[Problem], *, name: str) -> ConfigError:
    """Return the error that lists every problem of the configuration ``name``."""
    lines = listed(problems)
    count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    text = "\n  ".join([f"{name or 'the configuration'} has {count}:", *lines])
    if all(problem.severity == "not_yet" for problem in problems):
        return NotSupportedYetError(text)
    return ConfigError(text)


def _position(problem: Problem) -> tuple[str, int]:
    file, _, line = problem.where.rpartition(":")
    return (file, int(line)) if line.isdigit() else ("", 0)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the values of a configuration were written.

    Attributes:
        file: the file as the user named it; empty for a configuration made in Python.
        lines: line of each key that the file holds, by dotted path.
        overrides: paths that the command line set.
        moved: ``(path now, path in the file)`` of sections that were moved, applied in order.
        interpolations: of each, the text and what it became, by dotted path (Any: yaml).
    """

    file: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    overrides: frozenset[str] = frozenset()
    moved: tuple[tuple[str, str], ...] = ()
    interpolations: Mapping[str, tuple[str, Any]] = field(default_factory=dict)

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
        if line:
            return f"{self.file}:{line}"
        is_above = any(one.startswith(f"{path}.") for one in self.overrides)
        return "command line" if is_above else ""

    def problem(
        self, path: str, message: str, remedy: str = "", severity: Severity = "error"
    ) -> Problem:
        """Return what is wrong at a key, with the line of it or of the nearest section above."""
        place = path
        while place and not self.where(place):
            place = place.rpartition(".")[0]
        return Problem(
            path=self.written(path),
            message=message,
            remedy=remedy,
            where=self.where(place),
            severity=severity,
        )

    def with_moves(self, *moved: tuple[str, str]) -> Source:
        """Return what is known after sections were moved once more."""
        return replace(self, moved=(*moved, *self.moved))
