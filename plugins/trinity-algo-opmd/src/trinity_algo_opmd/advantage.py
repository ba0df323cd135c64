"""Compute OPMD's advantage: the reward minus a baseline of its group.

B rows of a batch   G groups
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from trinity.algorithm.advantage_fn import ComputedOn, GroupAdvantageFn, GroupedRewards
from trinity.algorithm.args import check_choice

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["OPMDAdvantageFn", "OPMDBatchAdvantageFn"]

Baseline = Literal["mean", "logavgexp"]


class OPMDAdvantageFn(GroupAdvantageFn):
    """Scores a row by ``R - b``; b is 0 in a group of one (arXiv 2505.17826, 2501.12599).

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

    def score(self, groups: GroupedRewards) -> tuple[Tensor, dict[str, Tensor]]:
        """Return each row's distance from the baseline, and the baseline beside the mean."""
        mean = self.opmd_baseline == "mean"
        baseline_G = groups.mean_G if mean else log_average_exp(groups, tau=self.tau)
        baseline_G = baseline_G.masked_fill(groups.is_single_G, 0.0)
        numbers = {"group_baseline": baseline_G, "reward_mean": groups.mean_G}
        return groups.reward_B - baseline_G[groups.group_B], numbers


class OPMDBatchAdvantageFn(OPMDAdvantageFn):
    """Scores the rows of the trainer's batch by the sum of their token rewards."""

    computed_on: ClassVar[ComputedOn] = "batch"


def log_average_exp(groups: GroupedRewards, *, tau: float) -> Tensor:
    """Return ``tau * ln(mean(exp(R / tau)))`` of each group.

    Exact for equal rewards and finite for large ones: the largest reward is taken out first.
    """
    above_N = groups.reward_N - groups.max_G[groups.group_N]
    mean_G = groups.sum_G((above_N / tau).exp()) / groups.count_G
    return groups.max_G + tau * mean_G.log()
