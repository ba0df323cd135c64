"""What keeps a task from running, and where it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Problem", "line_of"]

_HEADER = re.compile(r"^\s*\[\[?\s*([^\]]+?)\s*\]\]?")
_STEP = re.compile(r"^\s*\[\[\s*steps\s*\]\]")
_KEY = re.compile(r"^\s*([\w.\"'-]+)\s*=")


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing that a task asks for and cannot have, or a note.

    Attributes:
        file: where it is written.
        line: from 1; 0: it is nowhere, because something is missing.
        what: a sentence, and what to do.
        is_note: the task runs all the same.
    """

    file: Path
    what: str
    line: int = 0
    is_note: bool = False

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{place}: {'note: ' if self.is_note else ''}{self.what}"


def line_of(text: str, key: str, *, step: int = 0) -> int:
    r"""Return the line of TOML, from 1, that sets a dotted key or opens its table; 0: none does.

    Args:
        text: of the file.
        key: of the task, or of one of its steps.
        step: its ``[[steps]]`` table, from 1; 0: none.

    >>> line_of('version = 1\n[agent]\nuser = "me"', "agent.user")
    3
    >>> line_of('[[steps]]\nname = "a"\n[[steps]]\nname = "b"', "name", step=2)
    4
    """
    lines = text.splitlines()
    if step:
        begins = [place for place, line in enumerate(lines) if _STEP.match(line)][:step]
        first = begins[-1] if len(begins) == step else 0  # an inline table has no header
        return first + _line_of(lines[first:], f"steps.{key}") or first + 1
    return _line_of(lines, key)


def _line_of(lines: list[str], key: str) -> int:
    table, opened = "", 0
    for number, line in enumerate(lines, start=1):
        if header := _HEADER.match(line):
            table = header.group(1).replace('"', "").replace(" ", "")
            if table == key or (not opened and table.startswith(f"{key}.")):
                return number
        elif found := _KEY.match(line):
            name = found.group(1).replace('"', "")
            full = f"{table}.{name}" if table else name
            if full == key:
                return number
            if key.startswith(f"{full}."):  # an inline table
                opened = number
    return opened
