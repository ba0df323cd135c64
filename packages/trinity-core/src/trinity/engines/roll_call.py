"""Knows which of the active runs are here, which are away, and for how long.

Not thread-safe: the gate holds its lock.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trinity.common.ports import RunKey

_RunId = tuple[str, int, int]


class RollCall:
    """The runs that began and have not ended.

    Args:
        patience_s: a run that is away for longer is slow.
    """

    def __init__(self, *, patience_s: float) -> None:
        self._patience_s = patience_s
        self._active: Counter[_RunId] = Counter()  # how often each began and did not end
        self._here: Counter[_RunId] = Counter()  # requests of each run: waiting or being answered
        self._beyond_first: set[_RunId] = set()  # active, and nobody waits for them any more
        self._away: dict[_RunId, float] = {}  # active, and since when
        self._answering: Counter[RunKey] = Counter()  # first requests handed out

    @property
    def num_active(self) -> int:
        """Return how many runs began and have not ended."""
        return len(self._active)

    @property
    def num_answering(self) -> int:
        """Return how many first requests are being answered."""
        return len(self._answering)

    @property
    def is_complete(self) -> bool:
        """Return whether no active run is away."""
        return not self._away

    def is_active(self, key: RunKey) -> bool:
        """Return whether the run of a request began and has not ended."""
        return _run_of(key) in self._active

    def began(self, key: RunKey, *, now: float) -> None:
        """Note an active run, away until it asks."""
        run = _run_of(key)
        self._active[run] += 1
        if run not in self._here:
            self._away[run] = now

    def ended(self, key: RunKey) -> None:
        """Note that a run is over; nothing happens to one that did not begin."""
        run = _run_of(key)
        self._active[run] -= 1
        if self._active[run] <= 0:
            del self._active[run]
            self._away.pop(run, None)
            self._beyond_first.discard(run)

    def came(self, key: RunKey) -> None:
        """Note a request."""
        run = _run_of(key)
        self._away.pop(run, None)
        self._here[run] += 1
        if run in self._active and not is_first(key):
            self._beyond_first.add(run)

    def handed_out(self, *, first: Sequence[RunKey]) -> None:
        """Note that first requests are being answered."""
        self._answering.update(first)

    def left(self, keys: Iterable[RunKey], *, now: float) -> None:
        """Note that requests were answered or given up."""
        for key in keys:
            if key in self._answering:
                self._answering[key] -= 1
                if not self._answering[key]:
                    del self._answering[key]
            run = _run_of(key)
            self._here[run] -= 1
            if self._here[run] <= 0:
                del self._here[run]
                if run in self._active and run not in self._beyond_first:
                    self._away[run] = now

    def delay(self, now: float) -> float | None:
        """Return in how many seconds nobody is waited for; None: not before something changes."""
        if self._answering:
            return None
        if not self._away:
            return 0.0
        return max(0.0, max(self._away.values()) + self._patience_s - now)


def is_first(key: RunKey) -> bool:
    """Return whether this is the request that a run begins with."""
    return key.request == 0 and key.attempt == 1


def _run_of(key: RunKey) -> _RunId:
    return (key.batch, key.task, key.run)
