"""Wait for a process that was lost until another takes its place."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trinity.errors import RoomLostError, RoomWaitsError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Callee", "Patience", "Returning"]

logger = logging.getLogger(__name__)

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

    return_s: float = 300.0  # a large model takes its time to load
    move_s: float = 60.0  # until another one does what it had to do, if there is another
    num_losses: int = 3


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

    def first_answer(
        self, method: str, *args: Any, is_wanted: Callable[[], bool] = lambda: True
    ) -> Any:  # Any: what the method returns
        """Return what the room answers once it is back.

        Raises:
            RoomLostError: it did not come back in time, or nobody wants it any more.
        """
        deadline, pause_s = time.monotonic() + self._patience.return_s, _FIRST_PAUSE_S
        while True:
            try:
                return self._room.call(method, *args)
            except RoomLostError as error:
                if isinstance(error, RoomWaitsError):  # it is there: who brings weights has a limit
                    deadline = time.monotonic() + self._patience.return_s
                is_late = time.monotonic() + pause_s > deadline
                if error.is_final or is_late or not is_wanted():
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
