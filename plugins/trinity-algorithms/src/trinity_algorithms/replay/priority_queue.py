"""Hand out experiences by priority, and again after a while.

put(batch) --priority--> [ 9  7  7  4 ] --get(), take(n)--> the highest, of equal ones the oldest
     ^                                       |
     +---- after the cooldown, judged anew --+

place --> held --pop--> given --rest--> resting --wake--> place again, or given up
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from trinity.errors import BufferClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.ports import PriorityFn


@dataclass(eq=False)
class _Held:
    """A batch that can be had."""

    priority: float
    number: int  # counts what was placed; the oldest of equal priority comes first
    experiences: list[Experience]


@dataclass(eq=False)
class _Resting:
    """A batch that is placed again at a time."""

    wakes_at: float
    experiences: list[Experience]


class PriorityHeap:
    """Batches of experiences, the highest priority first.

    Args:
        capacity: how many batches can be had at most.
        priority_fn: judges a batch each time it is placed.

    Attributes:
        counts: experiences by what became of them: ``written``, ``uses``, ``reused`` (uses after
            the first), ``evicted`` (by a full shelf), ``given_up`` (by the priority function),
            ``too_old``, and ``untrained``: those of the last three that were never used.
    """

    def __init__(self, capacity: int, priority_fn: PriorityFn) -> None:
        self._capacity = capacity
        self._priority_fn = priority_fn
        self._held: list[_Held] = []
        self._resting: deque[_Resting] = deque()  # who wakes first comes first
        self._num_placed = self._num_put_back = 0
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return how many batches can be had."""
        return len(self._held)

    @property
    def num_experiences(self) -> int:
        return sum(len(held.experiences) for held in self._held)

    @property
    def next_wakes_at(self) -> float | None:
        """Return when the next batch is placed again; None: none rests."""
        return self._resting[0].wakes_at if self._resting else None

    def contents(self) -> list[Experience]:
        """Return all that can be had, then all that rests."""
        return [e for unit in (*self._held, *self._resting) for e in unit.experiences]

    def write(self, experiences: list[Experience]) -> None:
        """Place a new batch, if its priority is worth a place."""
        self.counts["written"] += len(experiences)
        self._place(experiences)

    def pop(self, count: int | None = None) -> list[Experience]:
        """Take out the first batch, or up to ``count`` of it: the rest keeps its place."""
        best = max(self._held, key=lambda held: (held.priority, -held.number))
        self._held.remove(best)
        if count is None or len(best.experiences) <= count:
            return best.experiences
        self._held.append(_Held(best.priority, best.number, best.experiences[count:]))
        return best.experiences[:count]

    def note_use(self, experiences: list[Experience], *, wakes_at: float | None) -> None:
        """Count one more use of what was taken out; it rests until then, None: for ever."""
        for experience in experiences:
            self._count_use(experience, 1)
            experience.info["use_count"] = _uses(experience) + 1
        if wakes_at is not None:
            self._resting.append(_Resting(wakes_at, experiences))

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Hold what was taken out last as if it had not been."""
        uids = {experience.eid.uid for experience in experiences}
        for unit in (*self._held, *self._resting):
            unit.experiences = [e for e in unit.experiences if e.eid.uid not in uids]
        self._held = [held for held in self._held if held.experiences]
        self._resting = deque(resting for resting in self._resting if resting.experiences)
        for experience in experiences:
            experience.info["use_count"] -= 1
            self._count_use(experience, -1)
        parts = [list(part) for _, part in groupby(experiences, key=_age)]
        for part in reversed(parts):
            self._num_put_back += 1
            priority, _ = self._judged(part)
            self._held.append(_Held(priority, -self._num_put_back, part))

    def wake(self, now: float) -> None:
        """Place again what has rested long enough."""
        while self._resting and self._resting[0].wakes_at <= now:
            self._place(self._resting.popleft().experiences)

    def forget_resting(self) -> None:
        """Let go of all that rests."""
        self._resting.clear()

    def drop_older(self, min_model_version: int) -> None:
        """Drop every batch that can be had and that older weights sampled."""
        for held in [h for h in self._held if version_of(h.experiences) < min_model_version]:
            self._held.remove(held)
            self.lose(held.experiences, "too_old")

    def lose(self, experiences: Sequence[Experience], reason: str) -> None:
        """Count what is dropped."""
        self.counts[reason] += len(experiences)
        self.counts["untrained"] += sum(not _uses(experience) for experience in experiences)

    def state_dict(self, now: float) -> dict[str, Any]:
        """Return how the contents lie, by the ids of the experiences, and the counts."""
        return {
            "held": [[h.priority, h.number, _uids(h.experiences)] for h in self._held],
            "resting": [[r.wakes_at - now, _uids(r.experiences)] for r in self._resting],
            "num_placed": self._num_placed,
            "num_put_back": self._num_put_back,
            "counts": dict(self.counts),
            "priority_fn": self._priority_fn.state_dict(),
        }

    def load_state_dict(
        self, state: Mapping[str, Any], *, experiences: Iterable[Experience], now: float
    ) -> None:
        """Hold these experiences as they lay then; what was left of a rest is left."""
        by_uid = {experience.eid.uid: experience for experience in experiences}
        self._held = [
            _Held(priority, number, _known(uids, by_uid))
            for priority, number, uids in state["held"]
        ]
        self._resting = deque(
            _Resting(now + left, _known(uids, by_uid)) for left, uids in state["resting"]
        )
        self._num_placed, self._num_put_back = state["num_placed"], state["num_put_back"]
        self.counts = Counter(state["counts"])
        self._priority_fn.load_state_dict(state["priority_fn"])

    def _place(self, experiences: list[Experience]) -> None:
        priority, is_kept = self._judged(experiences)
        if not is_kept:
            self.lose(experiences, "given_up")
            return
        if len(self._held) >= self._capacity:
            lowest = min(self._held, key=lambda held: (held.priority, held.number))
            if priority < lowest.priority:
                self.lose(experiences, "evicted")
                return
            self._held.remove(lowest)
            self.lose(lowest.experiences, "evicted")
        self._num_placed += 1
        self._held.append(_Held(priority, self._num_placed, experiences))

    def _judged(self, experiences: list[Experience]) -> tuple[float, bool]:
        priority, is_kept = self._priority_fn(experiences)
        return float(priority), bool(is_kept)  # of a plugin's tensors; a checkpoint is json

    def _count_use(self, experience: Experience, change: int) -> None:
        self.counts["uses"] += change
        self.counts["reused"] += change if _uses(experience) else 0


def version_of(experiences: Sequence[Experience]) -> int:
    """Return the weight version of a batch; its first experience decides."""
    return int(experiences[0].info.get("model_version") or 0)  # None: no weights of ours


def _uses(experience: Experience) -> int:
    return int(experience.info.get("use_count", 0))


def _age(experience: Experience) -> tuple[int, int]:
    return version_of([experience]), _uses(experience)


def _uids(experiences: Sequence[Experience]) -> list[str]:
    return [experience.eid.uid for experience in experiences]


def _known(uids: Sequence[str], by_uid: Mapping[str, Experience]) -> list[Experience]:
    return [by_uid[uid] for uid in uids if uid in by_uid]


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
        priority_fn: PriorityFn,
        *,
        reuse_cooldown_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shelf = PriorityHeap(capacity, priority_fn)
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
                raise BufferClosedError(
                    "the priority queue is closed; it accepts no more experiences"
                )
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
                    raise TimeoutError(f"the priority queue was empty for {timeout_s} s")
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
                        f"it has {self._shelf.num_experiences} of the {count} requested "
                        f"experiences after {timeout_s:.0f} s. They stay in it."
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
        """Return experiences by what became of them: see :class:`PriorityHeap`."""
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
