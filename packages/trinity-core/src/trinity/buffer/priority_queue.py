"""Hand out experiences by priority, and again after a while.

put(batch) --priority--> [ 9  7  7  4 ] --get(), take(n)--> the highest, of equal ones the oldest
     ^                                       |
     +---- after the cooldown, judged anew --+
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from trinity.buffer.priority_shelf import PriorityShelf, version_of
from trinity.errors import BufferClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trinity.buffer.priority import PriorityFunction
    from trinity.common.experience import Experience


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
        self._shelf = PriorityShelf(capacity, priority_fn)
        self._cooldown_s = reuse_cooldown_s
        self._clock = clock
        self._is_closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        """Return how many batches can be had now."""
        with self._changed:
            self._shelf.wake(self._clock())
            return len(self._shelf)

    def num_experiences(self) -> int:
        """Return how many experiences can be had now."""
        with self._changed:
            self._shelf.wake(self._clock())
            return self._shelf.num_experiences

    def put(self, experiences: Sequence[Experience]) -> None:
        """Store a batch, if its priority is worth a place; nothing happens to an empty one.

        Raises:
            BufferClosedError: the queue was closed.
        """
        with self._changed:
            if self._is_closed:
                raise BufferClosedError("the priority queue is closed; no more can be written")
            if experiences:
                self._shelf.wake(self._clock())
                self._shelf.write(list(experiences))
                self._changed.notify_all()

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
            while not (best := self._first(min_model_version)):
                if self._is_closed:
                    raise StopIteration
                if not self._waited(limit):
                    raise TimeoutError(f"the priority queue held nothing for {timeout_s} s")
            return self._used(best)

    def take(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return so many experiences of the highest priorities, each ``use_count`` one higher.

        A batch of which not all are wanted is cut; the rest keeps its place.

        Args:
            count: how many; fewer are returned only by a closed queue.
            timeout_s: how long to wait for them.
            min_model_version: all batches of older weights are dropped.

        Raises:
            TimeoutError: too few came in time; they stay.
            StopIteration: the queue was closed and holds nothing more.
        """
        limit = self._clock() + timeout_s
        with self._changed:
            while not self._holds(count, min_model_version) and not self._is_closed:
                if not self._waited(limit):
                    raise TimeoutError(
                        f"it holds {self._shelf.num_experiences} of the {count} experiences that "
                        f"were asked for, after {timeout_s:.0f} s. They stay there."
                    )
            taken: list[Experience] = []
            while len(self._shelf) and len(taken) < count:
                taken += self._used(self._shelf.pop(count - len(taken)))
        if not taken:
            raise StopIteration
        return taken

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Store what was given last and not used as if it had not been given."""
        with self._changed:
            self._shelf.put_back(experiences)
            self._changed.notify_all()

    def drop_older(self, min_model_version: int) -> None:
        """Drop all that can be had and that older weights sampled."""
        with self._changed:
            self._shelf.wake(self._clock())
            self._shelf.drop_older(min_model_version)

    def close(self) -> bool:
        """Take no more; return whether nothing is left to be had."""
        with self._changed:
            self._is_closed = True
            self._shelf.forget_resting()
            self._changed.notify_all()
            return not len(self._shelf)

    def contents(self) -> list[Experience]:
        """Return all that is held or rests, without taking it."""
        with self._changed:
            return self._shelf.contents()

    def counts(self) -> dict[str, int]:
        """Return experiences by what became of them: see :class:`PriorityShelf`."""
        with self._changed:
            return dict(self._shelf.counts)

    def state_dict(self) -> dict[str, Any]:
        """Return how the contents lie."""
        with self._changed:
            return self._shelf.state_dict(self._clock())

    def load_state_dict(
        self, state: Mapping[str, Any], *, experiences: Iterable[Experience]
    ) -> None:
        """Hold these experiences as they lay then."""
        with self._changed:
            self._shelf.load_state_dict(state, experiences=experiences, now=self._clock())
            self._changed.notify_all()

    def _first(self, min_model_version: int) -> list[Experience]:
        """Take out and return the first batch that is not too old; empty: there is none."""
        self._shelf.wake(self._clock())
        while len(self._shelf):
            best = self._shelf.pop()
            if version_of(best) >= min_model_version:
                return best
            self._shelf.lose(best, "too_old")
        return []

    def _holds(self, count: int, min_model_version: int) -> bool:
        self._shelf.wake(self._clock())
        self._shelf.drop_older(min_model_version)
        return self._shelf.num_experiences >= count

    def _used(self, experiences: list[Experience]) -> list[Experience]:
        wakes_at = None if self._cooldown_s is None else self._clock() + self._cooldown_s
        self._shelf.note_use(experiences, wakes_at=wakes_at)
        return experiences

    def _waited(self, limit: float) -> bool:
        """Wait until something may have changed; return False if it is too late for that."""
        now, wakes_at = self._clock(), self._shelf.next_wakes_at
        if now >= limit:
            return False
        until_next_wakes = threading.TIMEOUT_MAX if wakes_at is None else max(wakes_at - now, 0.0)
        self._changed.wait(min(limit - now, until_next_wakes))
        return True
