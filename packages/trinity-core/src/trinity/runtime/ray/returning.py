"""Wait for a process that was lost until another takes its place, and has its weights.

lost ---(return_s)---> another is there ---(weights_s)---> it answers
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trinity.errors import RoomLostError, RoomWaitsError

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

LEAST_LOAD_S = 600.0  # of weights, however short sync_timeout is: it waits for replies under way
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class Callee(Protocol):
    """Another room, as :class:`~trinity.runtime.ray.handle.RoomHandle` calls it."""

    name: str

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Return what the method returns (Any: each its own)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long a room is waited for, and how often it may be lost before it did anything."""

    return_s: float = 300.0  # until another process took its place: a large model takes its time
    weights_s: float = 900.0  # then until that was given weights; who brings them gives up earlier
    move_s: float = 60.0  # until another one does what it had to do, if there is another
    num_losses: int = 3

    @classmethod
    def of_runner(cls, *, sync_timeout: float) -> Patience:
        """Return that with an engine: longer than whoever brings it weights has for a load.

        >>> Patience.of_runner(sync_timeout=3600).weights_s
        3900.0
        """
        return cls(weights_s=max(LEAST_LOAD_S, sync_timeout) + cls().return_s)


class Returning:
    """Counts the losses of one room.

    Args:
        room: whose process may be lost.
        patience: with it.
    """

    def __init__(self, room: Callee, *, patience: Patience | None = None) -> None:
        self._room = room
        self._patience = patience or Patience()
        self._num_losses = 0

    def is_well(self) -> None:
        """Note that the room did something: earlier losses are forgiven."""
        self._num_losses = 0

    def lost(self, error: RoomLostError) -> None:
        """Note a loss.

        Raises:
            RoomLostError: it was one too many.
        """
        if isinstance(error, RoomWaitsError):
            logger.warning("%s; what it had to do is done once it has them", error)
            return
        self._num_losses += 1
        if error.is_final or self._num_losses > self._patience.num_losses:
            raise error
        logger.warning("%s; it is started again and what it had to do is done again", error)

    def loss_of(self, error: Exception, *, has_others: bool) -> RoomLostError:
        """Return an error of a call as a loss of the room.

        Args:
            error: that the call raised.
            has_others: who waits is moved to another room: one that is gone for good, or is not
                built again, is then waited for as others are.

        Raises:
            Exception: the error, where it is no loss.
        """
        if isinstance(error, RoomLostError) and not (error.is_final and has_others):
            return error
        if not has_others:
            raise error
        cause = error.cause if isinstance(error, RoomLostError) else f"it is not built: {error}"
        return RoomLostError(self._room.name, cause=cause)

    def first_answer(
        self,
        method: str,
        *args: Any,
        is_wanted: Callable[[], bool] = lambda: True,
        has_others: bool = False,
    ) -> Any:  # Any: what the method returns
        """Return what the room answers once it is back, and has its weights.

        Args:
            method: of the room.
            args: of the method.
            is_wanted: whether to go on.
            has_others: as for :meth:`loss_of`.

        Raises:
            RoomLostError: no process took its place in time, the one that did was given no weights
                in time, or nobody wants it any more.
            Exception: the method's own, or why the room is not built.
        """
        began, pause_s, was_there = time.monotonic(), _FIRST_PAUSE_S, False
        while True:
            try:
                return self._room.call(method, *args)
            except Exception as fault:
                error = self.loss_of(fault, has_others=has_others)
                is_there, now = isinstance(error, RoomWaitsError), time.monotonic()
                if is_there is not was_there:  # another wait, with a limit of its own
                    began, was_there = now, is_there
                if error.is_final or not is_wanted():
                    raise
                if now + pause_s - began > self._limit_s(is_there=is_there):
                    raise self._too_late(error, is_there=is_there) from fault
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _limit_s(self, *, is_there: bool) -> float:
        return self._patience.weights_s if is_there else self._patience.return_s

    def _too_late(self, error: RoomLostError, *, is_there: bool) -> RoomLostError:
        limit_s = self._limit_s(is_there=is_there)
        what = "it was given none" if is_there else "no other process took its place"
        return RoomLostError(self._room.name, cause=f"{error.cause}, and {what} in {limit_s:.0f} s")
