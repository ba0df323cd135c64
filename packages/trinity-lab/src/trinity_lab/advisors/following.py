"""What all built-in advisors share: a memory of a few numbers, and samples that show a finding."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any

from trinity.common.ports import Advice, Advisor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.common.ports import Observation

Row = "Mapping[str, Any]"
NUM_SAMPLES = 4
_MOST = 2000  # values that are kept of a metric: those of the beginning, and the newest
_BEGINNING = 200


class Series:
    """The values of a metric, with their steps; NaN and missing ones are left out."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.values: list[float] = []
        self._has_forgotten = False

    def add(self, step: int, value: float | None) -> bool:
        """Take in a value; return whether it was one."""
        if value is None or not math.isfinite(value):
            return False
        if len(self.values) >= _MOST:
            del self.steps[_BEGINNING], self.values[_BEGINNING]
            self._has_forgotten = True
        self.steps.append(step)
        self.values.append(value)
        return True

    def __len__(self) -> int:
        return len(self.values)

    def first(self, count: int) -> float:
        """Return the mean of the first values."""
        return fmean(self.values[:count])

    def last(self, count: int) -> float:
        """Return the mean of the last values."""
        return fmean(self.values[-count:])

    def until(self, count: int) -> str:
        """Return the steps of the first values; those between, if forgotten, are left out."""
        steps = self.steps[:count]
        if not self._has_forgotten or count <= _BEGINNING:
            return f"steps {steps[0]} to {steps[-1]}"
        beginning = f"steps {steps[0]} to {steps[_BEGINNING - 1]}"
        return f"{beginning} and {steps[_BEGINNING]} to {steps[-1]}"

    def since(self, count: int) -> str:
        """Return the steps of the last values, as people write them."""
        steps = self.steps[-count:]
        return f"steps {steps[0]} to {steps[-1]}"

    def noise(self, count: int) -> float:
        """Return the standard error of the mean of so many values, by the jumps between steps."""
        values = self.values[-4 * count :]
        if len(values) < 3:
            return math.inf
        jumps = [b - a for a, b in pairwise(values)]
        mean = fmean(jumps)  # statistics.stdev, in fractions, would take 2 ms of 2,000
        variance = math.fsum((jump - mean) ** 2 for jump in jumps) / (len(jumps) - 1)
        return math.sqrt(variance / (2 * count))


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """A finding whose samples are still to be read.

    Attributes:
        seen: the numbers and steps.
        remedy: what people do about it.
        shows: whether a row shows it; None: any row does.
        settings: for a rollback.
    """

    seen: str
    remedy: str
    shows: Callable[[Mapping[str, Any]], bool] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def advice(self, rows: Sequence[Mapping[str, Any]]) -> Advice:
        """Return it with the samples that show it."""
        shows = self.shows
        found = [str(row["eid"]) for row in rows if shows is None or shows(row)]
        return Advice(
            seen=self.seen,
            remedy=self.remedy,
            samples=found[:NUM_SAMPLES],
            settings=self.settings,
        )


class Following(Advisor):
    """An advisor that waits for the next optimizer step, whose samples show what it found."""

    _pending: Symptom | None = None
    _num_waited = 0

    @abstractmethod
    def _look(self, seen: Observation) -> Symptom | None:
        """Return what is wrong, or None."""

    def observe(self, seen: Observation) -> Advice | None:  # noqa: D102 -- of the base class
        if self._pending is None:
            self._pending = self._look(seen)
        if self._pending is None:
            return None
        self._num_waited += 1
        if seen.role == "trainer" or self._num_waited > 3:  # else nothing may be trained any more
            return self._pending.advice(seen.samples())
        return None
