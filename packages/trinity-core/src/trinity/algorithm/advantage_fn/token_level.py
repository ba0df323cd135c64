"""Compute advantages token by token from token rewards.

B rows of a batch   R response   tokens that the model did not choose are no steps
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.advantage_fn.base import AdvantageFn, ComputedOn
from trinity.algorithm.ops import masked, masked_whiten
from trinity.extend.published import published_name

if TYPE_CHECKING:
    from trinity.common.batch import ExperienceBatch

__all__ = ["PPOAdvantageFn"]

__getattr__ = partial(published_name, __name__)  # classes that a plugin has now


class PPOAdvantageFn(AdvantageFn):
    """Computes generalised advantage estimates (arXiv 1506.02438), whitened over the batch.

    Backwards over the unmasked tokens: ``delta = r + gamma V_next - V``,
    ``A = delta + gamma lam A_next``; returns are ``A + V``. Trinity-RFT takes masked tokens, such
    as an environment's answer, for steps too; here they change nothing.

    Args:
        gamma: how much a later reward is worth.
        lam: how far ahead rewards are trusted more than the critic.
    """

    computed_on: ClassVar[ComputedOn] = "batch"

    def __init__(self, *, gamma: float = 1.0, lam: float = 1.0) -> None:
        self.gamma = gamma
        self.lam = lam

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch with advantages and returns, 0 where masked.

        Raises:
            ValueError: fewer than two tokens of the batch are unmasked.
        """
        mask_BR = exps["action_mask"].bool()
        rewards_BR = masked(exps["token_level_rewards"], mask_BR)
        values_BR = masked(exps["values"].detach(), mask_BR)
        advantages_BR = rewards_BR.new_zeros(rewards_BR.shape)
        advantage_B = next_value_B = rewards_BR.new_zeros(len(rewards_BR))
        for place in reversed(range(mask_BR.shape[1])):
            mask_B, value_B = mask_BR[:, place], values_BR[:, place]
            delta_B = rewards_BR[:, place] + self.gamma * next_value_B - value_B
            advantage_B = (delta_B + self.gamma * self.lam * advantage_B).where(mask_B, advantage_B)
            next_value_B = value_B.where(mask_B, next_value_B)
            advantages_BR[:, place] = advantage_B
        exps["returns"] = masked(advantages_BR + values_BR, mask_BR)
        exps["advantages"] = masked(masked_whiten(advantages_BR, mask_BR), mask_BR)
        return exps, {}
