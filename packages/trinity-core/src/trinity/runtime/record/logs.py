"""Write the log of a run to its folder, and read it with each worker's as one that goes by time."""

from __future__ import annotations

import heapq
import logging
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trinity.common.secrets import masked
from trinity.common.value_checks import shortened
from trinity.errors import CheckpointError
from trinity.explorer.failure import TRACEBACKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
DRIVER = "driver"
MAX_RECORD = 100_000  # letters
_FAILED = "the run failed: "
_HEAD = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ([A-Z]+) (?:([^\s:]+): )?")


class MaskingFormatter(logging.Formatter):
    """Writes records and their tracebacks without secrets."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        return masked(shortened(super().format(record), MAX_RECORD))


class _Sayer(logging.Handler):
    """Hands each warning's text to a function."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != TRACEBACKS:
            self._say(f"{record.levelname.lower()}: {record.getMessage()}")


class _File(logging.FileHandler):
    """Writes the log; where that fails, says so once and lets the run go on."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        super().__init__(path, encoding="utf-8")
        self._say = say
        self._has_failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        self._tell_once()

    def close(self) -> None:
        """Close the file; what a full disk leaves unwritten is told, and hides no other error."""
        try:
            super().close()
        except OSError:
            self._tell_once()

    def _tell_once(self) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._say(f"warning: {self.baseFilename} cannot be written: {sys.exc_info()[1]}")


@contextmanager
def logs_to(directory: Path, *, level: str, say: Callable[[str], None]) -> Iterator[None]:
    """Write the log of the ``trinity`` loggers to ``trinity.log``, and say warnings at once.

    An error that leaves the block is written with its traceback.
    """
    logger = logging.getLogger("trinity")
    file = _File(directory / "trinity.log", say)
    file.setFormatter(MaskingFormatter())
    handlers: list[logging.Handler] = [file, _Sayer(say)]
    before = logger.level, logger.propagate
    logger.setLevel(level.upper())
    logger.propagate = False
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield
    except Exception as error:
        line = " ".join(str(error).split())
        logging.getLogger(TRACEBACKS).error("%s%s", _FAILED, line, exc_info=error)
        raise
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()


def last_error(directory: Path) -> str:
    """Return the error that ended the last start that failed; "": the log names none."""
    try:
        text = (directory / "trinity.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.rpartition(_FAILED)[2].partition("\n")[0] if _FAILED in text else ""


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
    found = [LogFile(directory / "trinity.log", DRIVER)]
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
