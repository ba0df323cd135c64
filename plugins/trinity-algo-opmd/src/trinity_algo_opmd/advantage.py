"""Compute OPMD's advantage: the reward minus a baseline of its group."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from trinity.algorithm.advantage_fn import ComputedOn, GroupAdvantageFn, RewardGroup
from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import mean_and_std

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["OPMDAdvantageFn", "OPMDBatchAdvantageFn"]

Baseline = Literal["mean", "logavgexp"]


class OPMDAdvantageFn(GroupAdvantageFn):
    """Scores a row by ``R - b``; b is 0 in a group of one.

    Args:
        opmd_baseline: ``mean``, or ``logavgexp``: ``tau * ln(mean(exp(R / tau)))``, which lies
            between the mean and the largest reward.
        tau: the temperature of ``logavgexp``, above 0.

    Raises:
        ValueError: no such baseline, or ``tau`` is not above 0.
    """

    def __init__(self, opmd_baseline: Baseline = "mean", tau: float = 1.0) -> None:
        check_choice("opmd_baseline", opmd_baseline, Baseline)
        if tau <= 0:
            raise ValueError(f"tau is {tau}; it must be above 0")
        self.opmd_baseline = opmd_baseline
        self.tau = tau

    def score(self, group: RewardGroup) -> tuple[list[float], dict[str, float]]:
        """Return each row's distance from the baseline, and the baseline beside the mean."""
        rewards = group.run_rewards
        mean = mean_and_std(rewards)[0]
        baseline = self._baseline(rewards, mean=mean)
        numbers = {"group_baseline": baseline, "reward_mean": mean}
        return [reward - baseline for reward in group.rewards], numbers

    def _baseline(self, rewards: Sequence[float], *, mean: float) -> float:
        if len(rewards) == 1:
            return 0.0
        if self.opmd_baseline == "mean":
            return mean
        return log_average_exp(rewards, tau=self.tau)


class OPMDBatchAdvantageFn(OPMDAdvantageFn):
    """Scores the rows of the trainer's batch by the sum of their token rewards."""

    computed_on: ClassVar[ComputedOn] = "batch"


def log_average_exp(values: Sequence[float], *, tau: float) -> float:
    """Return ``tau * ln(mean(exp(v / tau)))``, exact for equal values and finite for large ones.

    >>> log_average_exp([5000.0, 5000.0], tau=0.1)
    5000.0
    """
    top = max(values)
    mean = math.fsum(math.exp((value - top) / tau) for value in values) / len(values)
    return top + tau * math.log(mean)
