"""Compute RLOO's advantage: the reward minus the mean of the others'."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trinity.algorithm.advantage_fn.grouped import GroupAdvantageFn, GroupedRewards

if TYPE_CHECKING:
    from torch import Tensor
    from trinity.algorithm.advantage_fn.base import ComputedOn

__all__ = ["RLOOAdvantageFn"]


class RLOOAdvantageFn(GroupAdvantageFn):
    """Scores a row by ``n / (n - 1) (R - mean)`` (arXiv 2402.14740).

    That is R minus the mean of the n - 1 other runs of the task. A group of one keeps its R. R is
    the sum of a row's token rewards in the trainer's batch.
    """

    computed_on: ClassVar[ComputedOn] = "batch"

    def score(self, groups: GroupedRewards) -> tuple[Tensor, dict[str, Tensor]]:
        """Return each row's distance from the others."""
        count_G, single_G = groups.count_G, groups.is_single_G
        factor_G = (count_G / (count_G - 1).clamp(min=1)).masked_fill(single_G, 1.0)
        mean_G = groups.mean_G.masked_fill(single_G, 0.0)
        return (groups.reward_B - mean_G[groups.group_B]) * factor_G[groups.group_B], {}
