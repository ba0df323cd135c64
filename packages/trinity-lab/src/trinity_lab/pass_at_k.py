"""pass@k and mean@k of the rollouts of an evaluation, with intervals over tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from trinity_lab.statistics import Interval, interval_of, resampled_means

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True)
class Score:
    """One number of a table."""

    name: str
    value: float
    interval: Interval | None  # None: there is one task


def pass_at_k(num: int, num_passed: int, k: int) -> float:
    """Return the chance that one of k rollouts passes, unbiased: ``1 - C(n-c, k) / C(n, k)``.

    Equation 1 of arXiv 2107.03374.

    Args:
        num: rollouts of the task, n; at least k.
        num_passed: those that passed, c.
        k: rollouts that are drawn.

    Raises:
        ValueError: there are fewer rollouts than k.

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    if not 0 < k <= num:
        raise ValueError(f"pass@{k} of {num} rollouts")
    return 1.0 - math.comb(num - num_passed, k) / math.comb(num, k)


def scores_of(
    rewards: Mapping[str, Sequence[float]], *, num_repeats: int, passes_at: float
) -> list[Score]:
    """Return mean@n and pass@k, k doubling up to n.

    Args:
        rewards: of each task's rollouts.
        num_repeats: rollouts that each task should have, n; a failed one has no reward, and a task
            with fewer than k is left out of pass@k.
        passes_at: a rollout passes with at least this reward.
    """
    scores = [_score(f"mean@{num_repeats}", [fmean(values) for values in rewards.values()])]
    for k in sorted({*(2**n for n in range(num_repeats.bit_length())), num_repeats}):
        chances = [
            pass_at_k(len(values), sum(one >= passes_at for one in values), k)
            for values in rewards.values()
            if len(values) >= k
        ]
        if chances:
            scores.append(_score(f"pass@{k}", chances))
    return scores


def _score(name: str, values: Sequence[float]) -> Score:
    interval = interval_of(resampled_means([np.array(values)])) if len(values) > 1 else None
    return Score(name=name, value=fmean(values), interval=interval)
