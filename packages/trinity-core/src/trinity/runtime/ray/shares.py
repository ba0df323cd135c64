"""Which runner makes which orders of a step: its own share, and its part of what lost ones left.

task % n --> share of each runner --begin--> it makes them --ended--> made
                      |                            |
                      +----------lost--------------+--> left over --begin--> whoever is free
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Shares"]


class Shares:
    """The orders of a step, by their places.

    All of a task stay together, and each place is made once, whoever is lost.

    Args:
        tasks: the number of each order's task.
        num_runners: that share them.

    >>> shares = Shares([0, 0, 1, 1, 2, 2], num_runners=2)
    >>> shares.begin(0, num_free=2), shares.begin(1, num_free=1)
    ([0, 1, 4, 5], [2, 3])
    >>> sorted(shares.lost(0))  # 1 takes what is left once its own is made
    [0, 1, 4, 5]
    >>> shares.begin(1, num_free=1)
    []
    >>> shares.ended(1)
    >>> shares.begin(1, num_free=1)
    [0, 1, 4, 5]
    """

    def __init__(self, tasks: Sequence[int], *, num_runners: int) -> None:
        self._tasks = tasks
        self._own: list[list[int]] = [[] for _ in range(num_runners)]  # that has not begun
        for place, task in enumerate(tasks):
            self._own[task % num_runners].append(place)
        self._made_by: dict[int, list[int]] = {}  # what each runner makes now
        self._left: set[int] = set()  # that nobody makes
        self._open = set(range(len(tasks)))

    @property
    def are_made(self) -> bool:
        """Return whether all are."""
        return not self._open

    def is_busy(self, runner: int) -> bool:
        """Return whether a runner makes some."""
        return runner in self._made_by

    def begin(self, runner: int, *, num_free: int) -> list[int]:
        """Return what a runner is to make now; empty: nothing, or it makes some.

        Args:
            runner: that is there.
            num_free: how many could make what is left, this one among them.
        """
        if self.is_busy(runner):
            return []
        own, self._own[runner] = self._own[runner], []
        tasks = sorted({self._tasks[place] for place in self._left})
        part = set(tasks[: -(-len(tasks) // num_free)])
        taken = {place for place in self._left if self._tasks[place] in part}
        self._left -= taken
        places = sorted({*own, *taken})
        if places:
            self._made_by[runner] = places
        return places

    def ended(self, runner: int, *, left: Iterable[int] = ()) -> None:
        """Note that a runner has made what it was to make, but for what it leaves to others."""
        rest = set(left) & self._open
        self.made(set(self._made_by.pop(runner)) - rest)
        self._left |= rest

    def made(self, places: Iterable[int]) -> None:
        """Note that these are made, whoever was to make them."""
        self._open.difference_update(places)
        self._left.difference_update(places)

    def lost(self, runner: int) -> set[int]:
        """Leave what a runner makes, or was to make, to the others; return which places."""
        left = {*self._made_by.pop(runner, []), *self._own[runner]} & self._open
        self._own[runner] = []
        self._left |= left
        return left
