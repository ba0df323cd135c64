"""What is wrong with a configuration: one `Problem` each, all of them in one error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trinity.errors import ConfigError, NotSupportedYetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Problem", "config_error", "listed"]


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
    severity: Literal["error", "not_yet", "open", "notice"] = "error"

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
