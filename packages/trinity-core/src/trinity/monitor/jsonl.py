"""Files of JSON lines: metrics, and others that a run appends to and reads again."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from trinity.common.ports import Monitor
from trinity.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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
