"""Engines on a virtual clock: which slot takes a rollout, and what an engine that fails costs.

Rollouts begin in the order in which they are asked for, each in the slot that is free first. One
whose engine fails begins again in another slot; the engine is back after a while.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from trinity.errors import ConfigError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["Engines", "Seconds"]

_Z = NormalDist().inv_cdf(0.99)
_MOST_LOST = 1000  # times that one rollout begins again: it never ends
_MOST_TAIL = 14.0  # a log-normal's quantile by its mean: at most exp(z^2 / 2), and 14.97 of 99 %


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """How long something takes: always the same, or with a long tail (log-normal).

    Attributes:
        mean: seconds.
        sigma: of the logarithm; 0: always the same.
    """

    mean: float
    sigma: float = 0.0

    @classmethod
    def of_slowest(cls, mean: float, slowest: float, *, z: float = _Z) -> Seconds:
        """Return seconds of this mean whose slowest of many is as given.

        A quantile lies at ``mean * exp(sigma z - sigma^2 / 2)``. Its largest value is that of
        ``sigma = z``, which is taken where the slowest is beyond it.

        Args:
            mean: seconds.
            slowest: seconds; of a hundred, if ``z`` is not given.
            z: where the slowest lies, in standard deviations.

        >>> round(Seconds.of_slowest(12.0, 60.0).sigma, 3)
        0.845
        """
        if mean <= 0.0 or slowest <= mean:
            return cls(mean=max(0.0, mean))
        rest = z * z - 2.0 * math.log(slowest / mean)
        return cls(mean=mean, sigma=z - math.sqrt(max(0.0, rest)))

    @classmethod
    def parse(cls, text: str) -> Seconds:
        """Return what ``MEAN`` or ``MEAN:SLOWEST`` says; the slowest is that of a hundred.

        Raises:
            ConfigError: it says neither, or its tail is too long for that mean.

        >>> Seconds.parse("3")
        Seconds(mean=3.0, sigma=0.0)
        """
        try:
            mean, _, slowest = text.partition(":")
            numbers = float(mean), float(slowest or mean)
        except ValueError as error:
            raise ConfigError(f"{text!r} is no time. Write MEAN or MEAN:SLOWEST, 12:60.") from error
        if not all(math.isfinite(number) and number >= 0.0 for number in numbers):
            raise ConfigError(f"{text!r} is no time. Write seconds that are 0 or more.")
        if numbers[1] < numbers[0]:
            raise ConfigError(f"{text!r}: the slowest is below the mean. Write MEAN:SLOWEST.")
        if numbers[1] > numbers[0] * _MOST_TAIL:
            raise ConfigError(
                f"{text!r}: the slowest of a hundred is at most {_MOST_TAIL:.0f} times the mean. "
                f"Write a larger mean: {numbers[1] / _MOST_TAIL:,.3g} or more."
            )
        return cls.of_slowest(*numbers)

    def draw(self, dice: random.Random) -> float:
        """Return seconds."""
        if not self.sigma:
            return self.mean
        return self.mean * math.exp(dice.gauss(0.0, self.sigma) - self.sigma**2 / 2)

    def __str__(self) -> str:
        if not self.sigma:
            return f"{self.mean:,.3g} s"
        slowest = self.mean * math.exp(self.sigma * _Z - self.sigma**2 / 2)
        return f"{self.mean:,.3g} s (the slowest of a hundred {slowest:,.3g} s)"


class Engines:
    """The slots of all engines.

    Args:
        num_engines: that answer.
        slots: rollouts that each holds at a time.
        until_failure: draws the seconds from an engine's start to its failure; None: none fails.
        restart_s: from a failure until the engine is back.

    Attributes:
        busy_s: seconds of all slots together in which a rollout ran that was not lost.
        num_lost: rollouts that began again elsewhere.
    """

    def __init__(
        self,
        num_engines: int,
        *,
        slots: int,
        until_failure: Callable[[], float] | None = None,
        restart_s: float = 0.0,
    ) -> None:
        self._free = [(0.0, n, n % num_engines) for n in range(num_engines * slots)]
        self._until_failure, self._restart_s = until_failure, restart_s
        self._failures: list[list[float]] = [[] for _ in range(num_engines)]
        self.busy_s, self.num_lost = 0.0, 0

    @property
    def num_slots(self) -> int:
        """Return how many rollouts run at a time."""
        return len(self._free)

    def run(self, seconds: float, *, at: float) -> float:
        """Return when a rollout ends that is asked for now.

        Raises:
            ConfigError: its engine fails each time before it ends.
        """
        most = self.num_lost + _MOST_LOST
        while self.num_lost < most:
            free, slot, engine = heapq.heappop(self._free)
            begin = max(at, free)
            failure = self._failure_after(engine, begin)
            if begin + seconds <= failure:
                heapq.heappush(self._free, (begin + seconds, slot, engine))
                self.busy_s += seconds
                return begin + seconds
            heapq.heappush(self._free, (failure + self._restart_s, slot, engine))
            if begin < failure:
                self.num_lost += 1
                at = failure
        raise ConfigError(
            f"a rollout of {seconds:,.3g} s never ends: engines fail too often. Give a longer "
            f"--time failure=SECONDS, the mean time until one engine fails."
        )

    def _failure_after(self, engine: int, at: float) -> float:
        """Return the failure that an engine is down by at this time, or the next one."""
        if self._until_failure is None:
            return math.inf
        failures = self._failures[engine]
        while not failures or failures[-1] + self._restart_s <= at:
            back = failures[-1] + self._restart_s if failures else 0.0
            failures.append(back + self._until_failure())
        # Not at - restart_s: rounded, that lies before a failure whose engine is back at this time.
        return failures[bisect_right(failures, at, key=lambda one: one + self._restart_s)]
