"""The future of a request, which can be given up while it is being answered."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PendingReply", "begins", "fail"]

Answer = TypeVar("Answer")  # completions, or scores


class PendingReply(Future[Answer], Generic[Answer]):
    """As any future, but :meth:`cancel` also ends what is running.

    Args:
        on_cancel: called, in the thread of whom cancels, once the reply is given up.
    """

    def __init__(self, *, on_cancel: Callable[[], None]) -> None:
        super().__init__()
        self._on_cancel = on_cancel

    def cancel(self) -> bool:
        """Give the request up; return whether it had no answer yet."""
        if not super().cancel():
            try:
                self.set_exception(CancelledError())
            except InvalidStateError:  # it was answered
                return False
        self._on_cancel()
        return True


def begins(future: Future[Any]) -> bool:  # Any: completions, or scores
    """Return whether a reply is to be computed now: it was not given up, and has no answer."""
    if future.done() and not future.cancelled():
        return False
    try:
        return future.set_running_or_notify_cancel()
    except RuntimeError:  # it was answered in this moment
        return False


def fail(future: Future[Any], error: BaseException) -> None:  # Any: completions, or scores
    """Answer with an error, unless the reply was given up or has an answer."""
    with suppress(InvalidStateError):
        future.set_exception(error)
