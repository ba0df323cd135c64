"""Compute AsymRE's advantage: the reward minus a baseline below the mean.

B rows of a batch   G groups
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trinity.algorithm.advantage_fn import ComputedOn, GroupAdvantageFn, GroupedRewards

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ASYMREAdvantageFn", "ASYMREBatchAdvantageFn"]


class ASYMREAdvantageFn(GroupAdvantageFn):
    """Scores a row by ``R - (mean + baseline_shift)`` of its group (arXiv 2506.20520).

    A negative shift makes good rows count for more than bad ones, which keeps off-policy training
    from collapsing. A group of one keeps its R.

    Args:
        baseline_shift: how far the baseline lies above the mean; usually negative.
    """

    def __init__(self, baseline_shift: float = -0.1) -> None:
        self.baseline_shift = baseline_shift

    def score(self, groups: GroupedRewards) -> tuple[Tensor, dict[str, Tensor]]:
        """Return each row's distance from the baseline, and the baseline beside the mean."""
        baseline_G = (groups.mean_G + self.baseline_shift).masked_fill(groups.is_single_G, 0.0)
        numbers = {"group_baseline": baseline_G, "reward_mean": groups.mean_G}
        return groups.reward_B - baseline_G[groups.group_B], numbers


class ASYMREBatchAdvantageFn(ASYMREAdvantageFn):
    """Scores the rows of the trainer's batch by the sum of their token rewards."""

    computed_on: ClassVar[ComputedOn] = "batch"
