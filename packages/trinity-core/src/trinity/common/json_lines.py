"""Write files of JSON lines, and read those that a run wrote, each line checked by a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from trinity.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["append_whole", "first_bad_line", "first_problem", "read_lines"]


def append_whole(path: Path, data: bytes) -> int:
    """Append in one write, so that a kill leaves it out or whole; return where it ends.

    Raises:
        OSError: it cannot be written, and nothing of it is left; the error names the file.
    """
    with path.open("ab", buffering=0) as file:
        size, written = file.tell(), 0
        try:
            while written < len(data):  # a second time only where the disk held the beginning of it
                written += file.write(data[written:])  # and the system says why
        except OSError as error:
            file.truncate(size)
            raise OSError(error.errno, error.strerror, str(path)) from error
        return file.tell()


def read_lines(path: Path, model: Any) -> list[dict[str, Any]]:
    """Return the lines of a file; a last one that a kill cut short is left out (Any: json).

    Raises:
        CheckpointError: the file cannot be read, or another line is not what was written.
    """
    rows = []
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read: {error.strerror or error}. Make it a readable file, or remove "
            f"it."
        ) from error
    for number, row, problem in _checked(content, model):
        if problem:
            raise CheckpointError(
                f"{path}, line {number}, is damaged: {problem}. Put it back from a copy, or remove "
                f"the line."
            )
        rows.append(row)
    return rows


def first_bad_line(path: Path, model: Any, *, size: int) -> str:
    """Return the first line of so many bytes that is not what was written; empty: none is."""
    with path.open("rb") as file:
        content = file.read(size)
    for number, _, problem in _checked(content, model):
        if problem:
            return f"line {number}: {problem}"
    return ""


def first_problem(values: Any, model: Any) -> str:
    """Return what is wrong first with values, in a few words; empty: nothing is (Any: json)."""
    try:
        TypeAdapter(model).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = first["msg"][:1].lower() + first["msg"][1:]
        return f"{place}: {message}" if place else message
    return ""


def _checked(content: bytes, model: Any) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Give each whole line with its number, what it holds, and what is wrong with it."""
    *lines, _torn = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, {}, f"it is no JSON ({error})"
            continue
        yield number, row, first_problem(row, model)
