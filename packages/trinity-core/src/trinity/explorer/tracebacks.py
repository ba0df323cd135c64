"""Keep the tracebacks of failed attempts in the log of their room, equal ones of a step once."""

from __future__ import annotations

import logging
import re
import threading
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trinity.common.outcome import RunFailure

TRACEBACKS = "trinity.traceback"  # the logger of what stands in the log and is not handed on
logger = logging.getLogger(TRACEBACKS)

MAX_KINDS = 20  # written of one step; a message may hold something else each time
MAX_LETTERS = 20_000  # of one of them, its middle left out


@dataclass(slots=True)
class _Kind:
    first: RunFailure
    num_more: int = 0


class TracebackLog:
    """Writes each kind of failure of a step when it comes, how often it came at the step's end.

    Failures are alike if their tracebacks differ in nothing but the numbers of the last line.
    Any number of threads may call it.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._num_unwritten = 0
        self._lock = threading.Lock()

    def note(self, failure: RunFailure, text: str) -> None:
        """Write how an attempt failed, or count it if the step has that already.

        One that nobody waited for has not failed.

        Args:
            failure: what is told of it everywhere.
            text: its traceback; of a run that did not end, where it was.
        """
        if failure.is_cut:
            return
        key = re.sub(r"\d+", "0", f"{failure.plugin} {failure.workflow}\n{text}")
        with self._lock:
            known = self._kinds.get(key)
            if known is not None:
                known.num_more += 1
                return
            if len(self._kinds) == MAX_KINDS:
                self._num_unwritten += 1
                return
            self._kinds[key] = _Kind(failure)
        logger.error("%s\n%s", failure.line(), _shortened(text.rstrip()))

    def end_step(self) -> None:
        """Write how often each of them came again, and forget them."""
        with self._lock:
            kinds, self._kinds = self._kinds, {}
            num_unwritten, self._num_unwritten = self._num_unwritten, 0
        for kind in kinds.values():
            if kind.num_more:
                logger.error(
                    "%d more with the same traceback in this step: %s",
                    kind.num_more, kind.first.line(),
                )  # fmt: skip
        if num_unwritten:
            logger.error(
                "%d more failed attempts of this step have other tracebacks, which are not written",
                num_unwritten,
            )


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an error and of its causes, as Python prints it."""
    return "".join(traceback.format_exception(error))


def stack_text(stack: Iterable[traceback.FrameSummary]) -> str:
    """Return where a thread is, as Python prints it."""
    return "".join(["Where it was (most recent call last):\n", *traceback.format_list(stack)])


def _shortened(text: str) -> str:
    if len(text) <= MAX_LETTERS:
        return text
    half = MAX_LETTERS // 2
    return f"{text[:half]}\n... {len(text) - MAX_LETTERS} letters left out ...\n{text[-half:]}"
