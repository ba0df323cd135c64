"""Compute advantages from the returns of tokens, without a critic.

B rows of a batch   R response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.advantage_fn.base import AdvantageFn, ComputedOn
from trinity.algorithm.ops import masked, masked_whiten

if TYPE_CHECKING:
    from torch import Tensor
    from trinity.common.batch import ExperienceBatch

__all__ = ["REINFORCEPLUSPLUSAdvantageFn", "REMAXAdvantageFn"]


class REMAXAdvantageFn(AdvantageFn):
    """Subtracts the reward of the greedy answer from each token's return (arXiv 2310.10505).

    ``A = sum of the later rewards - baseline``. The field ``reward_baselines`` ``[B]`` holds the
    reward of the answer at temperature 0 to each row's prompt.
    """

    computed_on: ClassVar[ComputedOn] = "batch"

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch with advantages, 0 where masked, and returns, the later rewards."""
        mask_BR = exps["action_mask"].bool()
        rewards_BR = masked(exps["token_level_rewards"], mask_BR)
        returns_BR = rewards_BR.flip(1).cumsum(1).flip(1)
        baseline_B1 = exps["reward_baselines"].to(returns_BR)[:, None]
        exps["returns"] = returns_BR
        exps["advantages"] = masked(returns_BR - baseline_B1, mask_BR)
        return exps, {}


class REINFORCEPLUSPLUSAdvantageFn(AdvantageFn):
    """Whitens the discounted return of each token over the batch (arXiv 2501.03262).

    ``G = r + gamma G_next`` over the unmasked tokens; no group, no critic. Trinity-RFT takes masked
    tokens for steps too; here they change nothing.

    Args:
        gamma: how much a later reward is worth.
    """

    computed_on: ClassVar[ComputedOn] = "batch"

    def __init__(self, *, gamma: float = 1.0) -> None:
        self.gamma = gamma

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch with advantages and returns, 0 where masked.

        Raises:
            ValueError: fewer than two tokens of the batch are unmasked.
        """
        mask_BR = exps["action_mask"].bool()
        returns_BR = _discounted(masked(exps["token_level_rewards"], mask_BR), mask_BR, self.gamma)
        exps["returns"] = masked(returns_BR, mask_BR)
        exps["advantages"] = masked(masked_whiten(returns_BR, mask_BR), mask_BR)
        return exps, {}


def _discounted(rewards_BR: Tensor, mask_BR: Tensor, gamma: float) -> Tensor:
    returns_BR = rewards_BR.new_zeros(rewards_BR.shape)
    return_B = rewards_BR.new_zeros(len(rewards_BR))
    for place in reversed(range(mask_BR.shape[1])):
        later_B = rewards_BR[:, place] + gamma * return_B
        return_B = later_B.where(mask_BR[:, place], return_B)
        returns_BR[:, place] = return_B
    return returns_BR
