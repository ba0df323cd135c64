"""Reward the policy for staying undecided.

B rows of a micro-batch   R response
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from trinity.algorithm.args import WithDefaults
from trinity.algorithm.ops import LossAggMode, aggregate_loss, masked
from trinity.extend import Registry

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "ENTROPY_LOSS_FN",
    "DefaultEntropyLossFn",
    "EntropyLossFn",
    "MixEntropyLossFn",
    "NoEntropyLossFn",
]

__path__: list[str] = []  # a plugin may serve published modules below this one

ENTROPY_LOSS_FN = Registry("entropy_loss_fn", kind="entropy_loss_fn")


class EntropyLossFn(WithDefaults, ABC):
    """Computes what the trainer subtracts from the policy loss.

    Args:
        entropy_coef: the weight; 0: entropy is measured and not trained on.
    """

    def __init__(self, *, entropy_coef: float = 0.0) -> None:
        self.entropy_coef = entropy_coef

    @abstractmethod
    def __call__(
        self,
        entropy: Tensor,
        action_mask: Tensor,
        loss_agg_mode: LossAggMode = "token-mean",
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the weighted entropy and metrics.

        Args:
            entropy: ``[B, R]`` entropy of the distribution that each token was drawn from, in nats.
            action_mask: ``[B, R]`` which tokens count.
            loss_agg_mode: how tokens become one number.
            **kwargs: further fields of the batch (Any: tensors).
        """


class DefaultEntropyLossFn(EntropyLossFn):
    """Weighs the aggregated entropy by ``entropy_coef``."""

    def __call__(
        self,
        entropy: Tensor,
        action_mask: Tensor,
        loss_agg_mode: LossAggMode = "token-mean",
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the weighted entropy and ``entropy_loss`` (unscaled)."""
        value = aggregate_loss(masked(entropy, action_mask), action_mask, loss_agg_mode)
        return self.entropy_coef * value, {"entropy_loss": value.detach().item()}


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


class NoEntropyLossFn(EntropyLossFn):
    """Leaves entropy alone."""

    def __call__(
        self,
        entropy: Tensor,
        action_mask: Tensor,
        loss_agg_mode: LossAggMode = "token-mean",
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return 0 and no metrics."""
        return entropy.new_zeros(()), {}
