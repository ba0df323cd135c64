"""Intervals, tests and sample sizes for a handful of runs, in numpy alone.

scipy is no dependency of Trinity. The tests here are permutation tests: they need no distribution,
are exact for few seeds, and with very few seeds cannot find anything, which is the truth.

S seeds   T tasks   N resamples
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Values = NDArray[np.float64]

CONFIDENCE, POWER, ALPHA = 0.95, 0.8, 0.05
_NUM_RESAMPLES = 10_000
_MOST_EXACT = 20_000  # permutations that are all looked at
_SEED = 20_240_229  # the same runs give the same table


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An interval of 95 % around an estimate."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Return whether the value lies in it."""
        return self.low <= value <= self.high


def resampled_means(arm_ST: Sequence[Values], *, stream: int = 0) -> Values:
    """Return means of an arm whose seeds, and tasks where there are some, are drawn again.

    Args:
        arm_ST: for each seed the values of its tasks, NaN where it has none; or one value, the
            run's. Arms with the same number of tasks are drawn with the same tasks.
        stream: of random numbers: two arms draw their seeds apart.

    Returns:
        ``[N]`` means. A nested bootstrap: the spread of seeds and of tasks are both in it.
    """
    table_ST = np.stack([np.atleast_1d(one) for one in arm_ST])
    tasks_NT = task_shares(table_ST.shape[1])
    weights_NS = tasks_NT @ np.isfinite(table_ST).T
    sums_NS = tasks_NT @ np.nan_to_num(table_ST).T
    means_NS = np.tile(np.nanmean(table_ST, axis=1), (len(tasks_NT), 1))  # of a run not drawn
    np.divide(sums_NS, weights_NS, out=means_NS, where=weights_NS > 0)
    source = np.random.default_rng(_SEED + 1 + stream)
    seeds_NS = _shares(source, num=table_ST.shape[0], size=len(tasks_NT))
    means: Values = (seeds_NS * means_NS).sum(axis=1)
    return means


@lru_cache(maxsize=2)  # each pair of arms asks for it
def task_shares(num_tasks: int) -> Values:
    """Return ``[N, T]`` the share of each task in each resample of tasks."""
    return _shares(np.random.default_rng(_SEED), num=num_tasks, size=_num_resamples(num_tasks))


def interval_of(resamples: Values) -> Interval:
    """Return the percentile interval of resampled estimates."""
    low, high = np.quantile(resamples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(low=float(low), high=float(high))


def p_of_labels(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the p-value of a difference of means: how often other labels of runs give as much.

    Args:
        a: values of one arm's runs.
        b: of the other's.
    """
    pooled, size = np.array([*a, *b], dtype=float), len(a)
    total, seen = pooled.sum(), abs(np.mean(a) - np.mean(b))
    if math.comb(len(pooled), size) <= _MOST_EXACT:
        chosen = np.array(list(itertools.combinations(range(len(pooled)), size)))
        sums = pooled[chosen].sum(axis=1)
        extra = 0  # the real labels are among them
    else:
        source = np.random.default_rng(_SEED)
        orders = source.permuted(np.tile(pooled, (_NUM_RESAMPLES, 1)), axis=1)
        sums, extra = orders[:, :size].sum(axis=1), 1
    differences = np.abs(sums / size - (total - sums) / (len(pooled) - size))
    count = np.sum(differences >= seen - _rounding(pooled)) + extra
    return float(count / (len(differences) + extra))


def p_of_signs(a_ST: Sequence[Values], b_ST: Sequence[Values]) -> float:
    """Return the p-value of a mean of paired differences: how often other signs give as much.

    Args:
        a_ST: for each run of one arm the values of its tasks.
        b_ST: of the other's runs, of the same tasks.
    """
    differences = np.mean(b_ST, axis=0) - np.mean(a_ST, axis=0)
    signs, extra = _signs(len(differences))
    means = np.abs(signs @ differences) / len(differences)
    # A small difference of large values is off by their rounding, and two means are compared.
    off = _rounding(differences) + 2 * _rounding(np.stack([*a_ST, *b_ST]))
    count = np.sum(means >= abs(differences.mean()) - off) + extra
    return float(count / (len(means) + extra))


def _rounding(values: Values) -> float:
    """Return how far two means of so many values, or rows, may differ by rounding alone."""
    return float(len(values) * np.finfo(float).eps * np.abs(values).max())


@lru_cache(maxsize=1)
def _signs(num: int) -> tuple[Values, int]:
    """Return signs of so many differences, and how many more rows there would be: the real ones."""
    if 2**num <= _MOST_EXACT:
        return np.array(list(itertools.product((1.0, -1.0), repeat=num))), 0
    return np.random.default_rng(_SEED).choice((1.0, -1.0), (_NUM_RESAMPLES, num)), 1


def smallest_p(num_a: int, num_b: int) -> float:
    """Return the least p-value that so many seeds can give, whatever their values.

    >>> smallest_p(3, 3), round(smallest_p(4, 4), 3)
    (0.1, 0.029)
    """
    both = 2 if num_a == num_b else 1  # labels the other way round give the same difference
    return min(1.0, both / math.comb(num_a + num_b, num_a))


@dataclass(frozen=True, kw_only=True)
class SeedsNeeded:
    """Seeds an arm with which a difference of a size is found, at 5 % and a power of 80 %."""

    count: float  # infinite: there is no difference
    range: Interval  # of 95 %, for what a spread from so few seeds is worth


def seeds_needed(a: Sequence[float], b: Sequence[float]) -> SeedsNeeded | None:
    """Return the seeds that a difference of this size would need; None: an arm has one seed.

    ``n = 2 (z_0.975 + z_0.8)^2 s^2 / d^2``: a two-sided test of two equal arms, normal values,
    ``s^2`` the pooled variance, ``d`` the difference. The range is that of ``s^2 k / chi2_k``,
    k degrees of freedom.
    """
    if min(len(a), len(b)) < 2:
        return None
    freedom = len(a) + len(b) - 2
    squares = (len(a) - 1) * np.var(a, ddof=1) + (len(b) - 1) * np.var(b, ddof=1)
    variance, difference = float(squares) / freedom, float(np.mean(a) - np.mean(b))
    if not difference:
        return SeedsNeeded(count=math.inf, range=Interval(low=math.inf, high=math.inf))
    normal = NormalDist()
    z = normal.inv_cdf(1 - ALPHA / 2) + normal.inv_cdf(POWER)
    count = 2 * z**2 * variance / difference**2
    low, high = _spread_of_variance(freedom)
    return SeedsNeeded(count=count, range=Interval(low=count * low, high=count * high))


@lru_cache
def _spread_of_variance(freedom: int) -> tuple[float, float]:
    draws = np.random.default_rng(_SEED).chisquare(freedom, 200_000) / freedom
    low, high = 1 / np.quantile(draws, [(1 + CONFIDENCE) / 2, (1 - CONFIDENCE) / 2])
    return float(low), float(high)


def _shares(source: np.random.Generator, *, num: int, size: int) -> Values:
    drawn: Values = source.multinomial(num, np.full(num, 1 / num), size) / num
    return drawn


def _num_resamples(num_tasks: int) -> int:
    return max(1000, min(_NUM_RESAMPLES, 20_000_000 // num_tasks))  # 160 MB at most
