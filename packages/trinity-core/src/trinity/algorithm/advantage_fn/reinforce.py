"""Take the reward itself as the advantage."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trinity.algorithm.advantage_fn.grouped import GroupAdvantageFn, GroupedRewards

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ReinforceAdvantageFn"]


class ReinforceAdvantageFn(GroupAdvantageFn):
    """Scores a row by its reward, without a baseline (Williams, 1992)."""

    needs_group: ClassVar[bool] = False

    def score(self, groups: GroupedRewards) -> tuple[Tensor, dict[str, Tensor]]:
        """Return each row's reward, and the groups' means."""
        return groups.reward_B, {"reward_mean": groups.mean_G}
