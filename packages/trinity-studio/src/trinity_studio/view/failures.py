"""Failures of a run by plugin: the records of its logs that are errors or warnings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.errors import CheckpointError
from trinity_debug.log_files import log_files, merged

if TYPE_CHECKING:
    from pathlib import Path

    from trinity_debug.log_files import LogRecord

__all__ = ["Failure", "failures", "log_problems"]

MAX_KINDS = 200
_PLUGIN = re.compile(r"workflow '([^']*)' \(([^)]*)\), task (\S+)")
_AGAIN = re.compile(r"^(\d+) more with the same traceback in this step: (.*)", re.DOTALL)
_ERROR = 40


@dataclass(kw_only=True)
class Failure:
    """Failures that are alike.

    Attributes:
        plugin: whose; empty: the run's own.
        workflow: its name; empty: none is named.
        line: what was told.
        detail: the traceback; empty: there is none.
        room: who said it first.
        first: when.
        last: when it was told last.
        count: how often.
        is_error: or else a warning.
    """

    plugin: str
    workflow: str
    line: str
    detail: str
    worker: str
    first: str
    last: str
    count: int = 1
    is_error: bool = True


def failures(directory: Path) -> list[Failure]:
    """Return the failures of a run, the most frequent of each plugin first.

    Raises:
        CheckpointError: a log cannot be read.
    """
    found: dict[str, Failure] = {}
    for record in merged(log_files(directory), level=30):
        _add(record, found)
    return sorted(found.values(), key=lambda one: (one.plugin == "", one.plugin, -one.count))


def log_problems(directory: Path) -> tuple[list[Failure], str]:
    """Return the failures, and why they cannot be told; empty: they can."""
    try:
        return failures(directory), ""
    except (CheckpointError, OSError) as error:
        return [], str(error)


def _add(record: LogRecord, found: dict[str, Failure]) -> None:
    again = _AGAIN.match(record.text)
    text, count = (again[2], int(again[1])) if again else (record.text, 1)
    line, _, detail = text.partition("\n")
    key = re.sub(r"\d+", "0", line)
    known = found.get(key)
    if known is not None:
        known.count += count
        known.last = record.time
        known.detail = known.detail or detail
        return
    if len(found) >= MAX_KINDS:
        return
    named = _PLUGIN.search(line)
    found[key] = Failure(
        plugin=named[2] if named else "",
        workflow=named[1] if named else "",
        line=line,
        detail=detail,
        worker=record.worker,
        first=record.time,
        last=record.time,
        count=count,
        is_error=record.level >= _ERROR,
    )
