"""Reward the policy for staying undecided.

B rows of a micro-batch   R response
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.algorithm.args import WithDefaults
from trinity.algorithm.ops import LossAggMode, aggregate_loss, masked
from trinity.extend import Registry
from trinity.extend.published import published_name

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ENTROPY_LOSS_FN", "DefaultEntropyLossFn", "EntropyLossFn", "NoEntropyLossFn"]

__getattr__ = partial(published_name, __name__)  # classes that a plugin has now

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
