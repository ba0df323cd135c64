"""Compute the entropy of the rows that the policy sampled itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.algorithm import EntropyLossFn
from trinity.algorithm.ops import LossAggMode, aggregate_loss, masked

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MixEntropyLossFn"]


class MixEntropyLossFn(EntropyLossFn):
    """Weighs the aggregated entropy of the rows that the policy sampled itself.

    The rows of an expert have none: how undecided the policy is about somebody else's tokens says
    nothing about its exploring.
    """

    def __call__(
        self,
        entropy: Tensor,
        action_mask: Tensor,
        loss_agg_mode: LossAggMode = "token-mean",
        expert_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the weighted entropy and ``entropy_loss`` (unscaled); 0 without own rows.

        Args:
            entropy: ``[B, R]`` entropy of each token's distribution, in nats.
            action_mask: ``[B, R]`` which tokens count.
            loss_agg_mode: how tokens become one number.
            expert_mask: ``[B]`` which rows are an expert's.
            **kwargs: further fields of the batch (Any: tensors).

        Raises:
            ValueError: there is no ``expert_mask``.
        """
        if expert_mask is None:
            raise ValueError("entropy_loss_fn mix needs the field 'expert_mask'; is this a mix?")
        own_B = ~expert_mask.bool()
        if not bool(own_B.any()):
            return masked(entropy, action_mask).sum() * 0.0, {"entropy_loss": 0.0}
        mask_BR = action_mask[own_B]
        value = aggregate_loss(masked(entropy[own_B], mask_BR), mask_BR, loss_agg_mode)
        return self.entropy_coef * value, {"entropy_loss": value.detach().item()}
