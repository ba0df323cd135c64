"""The future of a request, which can be given up while it is being answered."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PendingReply"]

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
