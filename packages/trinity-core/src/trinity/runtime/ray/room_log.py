"""The log of one room: what its loggers say, and what its process prints."""

from __future__ import annotations

import faulthandler
import io
import logging
import sys
from typing import TYPE_CHECKING, Any

from trinity.explorer.failure import TRACEBACKS
from trinity.runtime.record.logs import FORMAT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def room_log(path: Path, *, level: str, say: Callable[[dict[str, Any]], None]) -> None:
    """Send what this process logs and prints to a file, for as long as it lives.

    Args:
        path: of the file; what a process before this one wrote is kept.
        level: the least severe records of the ``trinity`` loggers that are written.
        say: gets each record of WARNING and above, as the dict that makes it again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(path, encoding="utf-8")
    file.setFormatter(logging.Formatter(FORMAT))
    logger = logging.getLogger("trinity")
    logger.setLevel(level.upper())
    logger.propagate = False
    for handler in (file, _Teller(say)):
        logger.addHandler(handler)
    sys.stdout, sys.stderr = _Lines(file, "stdout"), _Lines(file, "stderr")
    faulthandler.enable(_descriptor(file), all_threads=False)  # a crash of native code


def _descriptor(file: logging.FileHandler) -> int:
    assert file.stream is not None
    return file.stream.fileno()


class _Teller(logging.Handler):
    """Hands on each warning as a plain dict."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == TRACEBACKS:
            return
        self._say(
            {
                "name": record.name,
                "levelno": record.levelno,
                "levelname": record.levelname,
                "msg": record.getMessage(),
            }
        )


class _Lines(io.TextIOBase):
    """A text stream whose lines become log records, whatever the level."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, file: logging.Handler, name: str) -> None:
        self._file = file
        self._name = name
        self._rest = ""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Write the lines that are whole; the rest waits."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._emit(line)
        return len(text)

    def flush(self) -> None:
        """Write what waits for the end of its line."""
        rest, self._rest = self._rest, ""
        if rest:
            self._emit(rest)

    def _emit(self, line: str) -> None:
        values = {"name": self._name, "levelno": logging.INFO, "levelname": "INFO", "msg": line}
        self._file.handle(logging.makeLogRecord(values))
