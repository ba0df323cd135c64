"""Write the log of a run to its folder (trinity-debug reads it)."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trinity.common.secrets import masked
from trinity.common.value_checks import shortened, text_of
from trinity.explorer.failure import TRACEBACKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MAX_RECORD = 100_000  # letters
FAILED = "the run failed: "


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
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        logging.getLogger(TRACEBACKS).error("%s%s", FAILED, text_of(error), exc_info=error)
        raise
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
