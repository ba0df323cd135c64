"""Knows which of the active runs are here, which are away, and for how long.

Not thread-safe: the gate holds its lock.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trinity.common.ports import RunKey

__all__ = ["RollCall", "is_first"]

_RunId = tuple[str, int, int] | int  # an int: a run that began and has not asked yet


class RollCall:
    """The runs that began and have not ended.

    Args:
        patience_s: a run that is away for longer is slow.
    """

    def __init__(self, *, patience_s: float) -> None:
        self._patience_s = patience_s
        self._num_begun = 0
        self._here: Counter[_RunId] = Counter()  # requests of each run: waiting or being answered
        self._beyond_first: set[_RunId] = set()  # nobody waits for them any more
        self._away: dict[_RunId, float] = {}  # since when
        self._answering: Counter[RunKey] = Counter()  # first requests handed out
        self.num_active = 0

    @property
    def num_answering(self) -> int:
        """Return how many first requests are being answered."""
        return len(self._answering)

    @property
    def is_complete(self) -> bool:
        """Return whether no active run is away."""
        return self.num_active <= self._num_present()

    def began(self, *, now: float) -> None:
        """Count one more run, away until it asks."""
        self.num_active += 1
        self._num_begun += 1
        self._away[self._num_begun] = now

    def ended(self) -> None:
        """Count one run less."""
        self.num_active = max(0, self.num_active - 1)
        self._forget_surplus()

    def came(self, key: RunKey) -> None:
        """Note a request."""
        run = _run_of(key)
        is_known = self._away.pop(run, None) is not None or self._is_present(run)
        self._here[run] += 1
        if not is_first(key):
            self._beyond_first.add(run)
        if not is_known:
            unnamed = next((name for name in self._away if isinstance(name, int)), None)
            if unnamed is not None:
                del self._away[unnamed]

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
                if run not in self._beyond_first:
                    self._away[run] = now
        self._forget_surplus()

    def delay(self, now: float) -> float | None:
        """Return in how many seconds nobody is waited for; None: not before something changes."""
        if self._answering:
            return None
        if self.is_complete or not self._away:
            return 0.0
        return max(0.0, max(self._away.values()) + self._patience_s - now)

    def _num_present(self) -> int:
        return len(self._here) + sum(run not in self._here for run in self._beyond_first)

    def _is_present(self, run: _RunId) -> bool:
        return run in self._here or run in self._beyond_first

    def _forget_surplus(self) -> None:
        """Keep as many runs as can be: which one of them ended, nobody says.

        It had most likely been answered before; the one that was answered last first.
        """
        surplus = self._num_present() + len(self._away) - self.num_active
        if surplus <= 0:
            return
        named = [run for run in reversed(self._away) if not isinstance(run, int)]
        unnamed = [run for run in reversed(self._away) if isinstance(run, int)]
        idle = [run for run in self._beyond_first if run not in self._here]
        for run in [*named, *idle, *unnamed][:surplus]:
            self._away.pop(run, None)
            self._beyond_first.discard(run)


def is_first(key: RunKey) -> bool:
    """Return whether this is the request that a run begins with."""
    return key.request == 0 and key.attempt == 1


def _run_of(key: RunKey) -> tuple[str, int, int]:
    return (key.batch, key.task, key.run)
