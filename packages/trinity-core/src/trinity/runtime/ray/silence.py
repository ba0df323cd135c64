"""Name a process that is there and does not answer, and end it, so that what it did is done again.

A thread of the driver asks each room for a beat, which a thread of its own answers there however
long a step takes. A process that is stopped (SIGSTOP, a debugger) or whose machine hangs is silent:

silent for WARN_S         it is named, with what to do
for a part of the limit   it is ended: an engine or a runner is started again, a trainer is lost and
                          the run goes back to its checkpoint, as when the process died
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from trinity.explorer.failure import TRACEBACKS
from trinity.runtime.ray.watch import is_ray_lost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.runtime.ray.handle import RoomHandle

logger = logging.getLogger(__name__)
tracebacks = logging.getLogger(TRACEBACKS)

WARN_S = 30.0
PART_OF_LIMIT = 0.7  # silence that is a loss: it is noticed up to two pauses late
PAUSE_S = 10.0  # between two questions; a tenth of the limit where that is less
LATE = 3.0  # pauses: after as many, this process itself was stopped, and asks anew
READ_S = 5.0  # for an answer that is there
CLOSE_S = 6.0  # for the last look to end


@dataclass(slots=True)
class _Asked:
    beat: Any  # a reference
    since: float
    is_told: bool = False


class Silences:
    """Looks after rooms as long as they are built.

    Args:
        rooms: started with ``beats``.
        limit_s: within which one that is silent is ended.
        where: by room, the process that it is in, as :meth:`RoomHandle.beat` tells it.
    """

    def __init__(
        self, rooms: Sequence[RoomHandle], *, limit_s: float, where: Mapping[str, str]
    ) -> None:
        self._rooms = rooms
        self._limit_s = limit_s
        self._pause_s = min(PAUSE_S, limit_s / 10)
        self._asked: dict[str, _Asked] = {}
        self._where = dict(where)
        self._looked = time.monotonic()
        self._failed: set[tuple[str, type]] = set()  # what kept a room from a look, told once
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="trinity-silence", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more: who has returned from here hears of no room; safe to call twice."""
        self._closed.set()
        if self._thread.is_alive() and not is_ray_lost():  # whose calls may not come back
            self._thread.join(CLOSE_S)

    def look(self) -> None:
        """Ask everybody once, and see who has not answered since."""
        now = time.monotonic()
        if now - self._looked > LATE * self._pause_s:
            self._asked.clear()
        self._looked = now
        for room in self._rooms:
            if self._closed.is_set():
                return
            try:
                self._look_at(room, now)
            except RayError as error:  # Ray itself is lost, which others tell
                logger.info("rooms cannot be asked: %s", " ".join(str(error).split()))
            except Exception as error:  # noqa: BLE001 -- the others are looked at, and it again
                self._tell_failure(room, error)

    def _look_on(self) -> None:
        while not self._closed.wait(self._pause_s) and ray.is_initialized():
            self.look()

    def _look_at(self, room: RoomHandle, now: float) -> None:
        asked = self._asked.get(room.name)
        if asked is None or self._has_answered(room, asked):
            self._asked[room.name] = _Asked(room.beat(), now)
        else:
            self._note(room, asked, silence_s=now - asked.since)

    def _tell_failure(self, room: RoomHandle, error: Exception) -> None:
        """Say once what keeps a room from being looked at; the log has the traceback."""
        self._asked.pop(room.name, None)
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if (room.name, type(error)) in self._failed:
            return
        self._failed.add((room.name, type(error)))
        tracebacks.error("%s was not asked whether it is there", room.name, exc_info=error)
        logger.warning(
            "whether %s is there could not be asked (%s). It is asked again; where this stays so, "
            "a process that is stopped is not noticed: stop the run and start it again.",
            room.name, what,
        )  # fmt: skip

    def _has_answered(self, room: RoomHandle, asked: _Asked) -> bool:
        if not ray.wait([asked.beat], timeout=0)[0]:
            return False
        try:
            where: str = ray.get(asked.beat, timeout=READ_S)
        except RayError:  # it is lost, or started again: who calls it hears so
            return True
        self._where[room.name] = where
        return True

    def _note(self, room: RoomHandle, asked: _Asked, *, silence_s: float) -> None:
        where = self._where[room.name]
        if silence_s > PART_OF_LIMIT * self._limit_s:
            logger.warning(
                "%s (%s) has not answered for %.0f s and is ended: %s.",
                room.name, where, silence_s,
                "it is started again" if room.comes_back else "the run goes back to its checkpoint",
            )  # fmt: skip
            del self._asked[room.name]
            room.kill(comes_back=room.comes_back)  # one that is stopped ends 5 s later
        elif silence_s > min(WARN_S, self._limit_s / 3) and not asked.is_told:
            asked.is_told = True
            logger.warning(
                "%s (%s) has not answered for %.0f s: it is stopped, holds Python's lock for a "
                "long call, or its machine is very busy. "
                "If it is stopped, let it go on (kill -CONT); it is ended within %.0f s "
                "(synchronizer.sync_timeout).",
                room.name, where, silence_s, self._limit_s,
            )  # fmt: skip
