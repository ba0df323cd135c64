"""Read the log of a run and of each of its workers as one log, in the order of time."""

from __future__ import annotations

import heapq
import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trinity.errors import CheckpointError
from trinity.runtime.record.logs import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_DRIVER = "driver"
_HEAD = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ([A-Z]+) (?:([^\s:]+): )?")


def last_error(directory: Path) -> str:
    """Return the error that ended the last start that failed; "": the log names none."""
    try:
        text = (directory / "trinity.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.rpartition(FAILED)[2].partition("\n")[0] if FAILED in text else ""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record: a line, and those that follow without a time, such as a traceback's."""

    time: str  # sorts as text
    level: int
    worker: str  # "driver", "trainer"; with stages "sft/trainer"
    text: str  # without time, level and logger, and without the newline at the end
    logger: str = ""  # "trinity.explorer.scheduler", "stdout"; "": it is not told


@dataclass
class LogFile:
    """One file, read from where the last reading ended."""

    path: Path
    worker: str
    _position: int = field(default=0, init=False)
    _waiting: str = field(default="", init=False)  # a line that is not yet whole

    def read(self) -> Iterator[LogRecord]:
        """Yield the records that are new since the last call."""
        current: list[str] = []
        for line in self._new_lines():
            if _HEAD.match(line) and current:
                yield self._record(current)
                current = []
            current.append(line)
        if current:
            yield self._record(current)

    def _new_lines(self) -> list[str]:
        try:
            with self.path.open(encoding="utf-8", errors="replace", newline="\n") as file:
                file.seek(self._position)
                text = self._waiting + file.read()
                self._position = file.tell()
        except OSError as error:
            raise CheckpointError(
                f"{self.path} cannot be read: {error.strerror or error}. Make it readable, or name "
                f"another worker."
            ) from error
        *lines, self._waiting = text.split("\n")
        return lines

    def _record(self, lines: list[str]) -> LogRecord:
        head = _HEAD.match(lines[0])
        if head is None:
            return LogRecord("", logging.INFO, self.worker, "\n".join(lines))
        level = logging.getLevelNamesMapping().get(head[2], logging.INFO)
        text = "\n".join([lines[0][head.end() :], *lines[1:]])
        return LogRecord(head[1], level, self.worker, text, logger=head[3] or "")


def log_files(directory: Path) -> list[LogFile]:
    """Return the logs of a run directory: the driver's, each worker's, those of its stages."""
    found = [LogFile(directory / "trinity.log", _DRIVER)]
    for folder in sorted(directory.glob("logs")) + sorted(directory.glob("*/logs")):
        stage = "" if folder.parent == directory else f"{folder.parent.name}/"
        found += [LogFile(path, f"{stage}{path.stem}") for path in sorted(folder.glob("*.log"))]
    return [file for file in found if file.path.is_file()]


def merged(files: Iterable[LogFile], *, level: int = logging.NOTSET) -> Iterator[LogRecord]:
    """Yield the new records of all files by time, those of the level and above."""
    streams = [file.read() for file in files]
    for record in heapq.merge(*streams, key=lambda record: record.time):
        if record.level >= level:
            yield record
