"""Errors that SDKs of agents raise behind a run that went well: counted, in place of tracebacks.

asyncio tells of an error that nobody awaits when its task is deleted, and Python of one in a
``__del__``: after the run, and in nobody's way. Two are known and harmless; all others are shown.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LateErrors", "late_errors"]

_KNOWN: tuple[tuple[type[BaseException], str], ...] = (
    (RuntimeError, "Event loop is closed"),  # a client that is closed after its loop (ag2)
    (ValueError, "task_done() called too many times"),  # a worker that logs calls (litellm)
)


class LateErrors(logging.Filter):
    """Counts the known errors of this process, and lets no one else hear of them."""

    def __init__(self) -> None:
        super().__init__()
        self._num = 0
        self._lock = threading.Lock()
        self._unraisable: Callable[[Any], object] | None = None  # who heard of them before

    def install(self) -> None:
        """Listen to asyncio, and to errors in ``__del__``; safe to call twice."""
        with self._lock:
            if self._unraisable is None:
                self._unraisable = sys.unraisablehook
                sys.unraisablehook = self._heard
                logging.getLogger(asyncio.__name__).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record of asyncio's is shown."""
        error = record.exc_info[1] if record.exc_info else None
        return not self._is_counted(error)

    def taken(self) -> int:
        """Return how many there were since the last call."""
        with self._lock:
            num, self._num = self._num, 0
        return num

    def _heard(self, unraisable: Any) -> None:  # Any: sys.UnraisableHookArgs, of typeshed alone
        if not self._is_counted(unraisable.exc_value) and self._unraisable is not None:
            self._unraisable(unraisable)

    def _is_counted(self, error: BaseException | None) -> bool:
        is_known = any(type(error) is kind and str(error) == said for kind, said in _KNOWN)
        if is_known:
            with self._lock:
                self._num += 1
        return is_known


late_errors = LateErrors()
