"""Hand out batches of experiences by priority, and again after a while.

put(batch) --priority--> [ 9  7  7  4 ] --get()--> the highest, of equal ones the oldest
     ^                                       |
     +---- after the cooldown, judged anew --+
"""

from __future__ import annotations

import heapq
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trinity.errors import BufferClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity.buffer.priority import PriorityFunction
    from trinity.common.experience import Experience

__all__ = ["PriorityQueue"]


@dataclass(order=True)
class _Resting:
    """A batch that is put back at a time."""

    wakes_at: float
    experiences: list[Experience] = field(compare=False)


@dataclass
class _Held:
    """A batch that can be had."""

    priority: float
    number: int  # counts what was put
    experiences: list[Experience]


class PriorityQueue:
    """Gives the batch of the highest priority first; thread-safe, and never makes a writer wait.

    A full queue passes over a new batch whose priority is below all others, and gives up the oldest
    of the lowest for any other.

    Args:
        capacity: how many batches it holds.
        priority_fn: judges a batch each time it is put.
        reuse_cooldown_s: seconds until a batch that was given can be had again; None: never.
        clock: the time in seconds.
    """

    def __init__(
        self,
        capacity: int,
        priority_fn: PriorityFunction,
        *,
        reuse_cooldown_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._capacity = capacity
        self._priority_fn = priority_fn
        self._cooldown_s = reuse_cooldown_s
        self._clock = clock
        self._held: list[_Held] = []
        self._resting: list[_Resting] = []
        self._num_put = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        """Return how many batches can be had now."""
        with self._changed:
            self._wake()
            return len(self._held)

    def put(self, experiences: Sequence[Experience]) -> None:
        """Store a batch, if its priority is worth a place; nothing happens to an empty one.

        Raises:
            BufferClosedError: the queue was closed.
        """
        with self._changed:
            if self._is_closed:
                raise BufferClosedError("the priority queue is closed; no more can be written")
            if experiences:
                self._place(list(experiences))
                self._changed.notify()

    def get(self, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return the batch of the highest priority, its ``use_count`` one higher.

        Args:
            timeout_s: how long to wait for one.
            min_model_version: batches of older weights are dropped where they come first.

        Raises:
            TimeoutError: none came in time.
            StopIteration: the queue was closed and holds nothing more.
        """
        limit = self._clock() + timeout_s
        with self._changed:
            while (best := self._best(min_model_version)) is None:
                if self._is_closed:
                    raise StopIteration
                left = limit - self._clock()
                if left <= 0:
                    raise TimeoutError(f"the priority queue held nothing for {timeout_s} s")
                self._changed.wait(min(left, self._until_next_wakes()))
            for experience in best.experiences:
                experience.info["use_count"] = experience.info.get("use_count", 0) + 1
            if self._cooldown_s is not None:
                wakes_at = self._clock() + self._cooldown_s
                heapq.heappush(self._resting, _Resting(wakes_at, best.experiences))
            return best.experiences

    def close(self) -> bool:
        """Take no more; return whether nothing is left to be had."""
        with self._changed:
            self._is_closed = True
            self._resting.clear()
            self._changed.notify_all()
            return not self._held

    def _best(self, min_model_version: int) -> _Held | None:
        """Take out and return the first batch that is not too old; None: there is none."""
        self._wake()
        while self._held:
            best = max(self._held, key=lambda held: (held.priority, -held.number))
            self._held.remove(best)
            if (best.experiences[0].info.get("model_version") or 0) >= min_model_version:
                return best
        return None

    def _wake(self) -> None:
        while self._resting and self._resting[0].wakes_at <= self._clock():
            self._place(heapq.heappop(self._resting).experiences)

    def _until_next_wakes(self) -> float:
        if not self._resting:
            return float(threading.TIMEOUT_MAX)
        return max(self._resting[0].wakes_at - self._clock(), 0.0)

    def _place(self, experiences: list[Experience]) -> None:
        priority, is_kept = self._priority_fn(experiences)
        if not is_kept:
            return
        if len(self._held) >= self._capacity:
            lowest = min(self._held, key=lambda held: (held.priority, held.number))
            if priority < lowest.priority:
                return
            self._held.remove(lowest)
        self._num_put += 1
        self._held.append(_Held(priority, self._num_put, experiences))
