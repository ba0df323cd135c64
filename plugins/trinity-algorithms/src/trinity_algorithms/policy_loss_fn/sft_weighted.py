"""Compute losses of supervised fine-tuning that weigh a token by its own probability.

B rows of a micro-batch   R response   p = e^logprob
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import LossAggMode, aggregate_loss, masked
from trinity.algorithm.policy_loss_fn.base import PolicyLossFn

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SFTISPolicyLossFn", "SFTPhiPolicyLossFn"]


class SFTISPolicyLossFn(PolicyLossFn):
    """Takes ``-p logprob``, p detached: dynamic fine-tuning (arXiv 2508.05629).

    A token that the policy finds unlikely teaches little, in proportion to its probability.

    Args:
        loss_agg_mode: how tokens become one number.
    """

    def __init__(self, *, loss_agg_mode: LossAggMode = "token-mean") -> None:
        check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
        self.loss_agg_mode = loss_agg_mode

    def __call__(  # type: ignore[override]  # the names are the fields
        self, logprob: Tensor, action_mask: Tensor, **kwargs: Any
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and ``sft_is_loss``."""
        logprob_BR = masked(logprob, action_mask)
        losses_BR = -logprob_BR.detach().exp() * logprob_BR
        loss = aggregate_loss(losses_BR, action_mask, self.loss_agg_mode)
        return loss, {"sft_is_loss": loss.detach().item()}


class SFTPhiPolicyLossFn(PolicyLossFn):
    """Takes ``-p (1 - p) logprob``, the weight detached: CHORD's phi (arXiv 2508.11408).

    What the policy is sure of, either way, teaches little.

    Args:
        cutoff_prob: above it a token has no gradient at all; 1: none is cut off.
        loss_agg_mode: how tokens become one number.

    Raises:
        ValueError: ``cutoff_prob`` is not above 0 and at most 1, or there is no such mode.
    """

    def __init__(
        self, *, cutoff_prob: float = 1.0, loss_agg_mode: LossAggMode = "token-mean"
    ) -> None:
        check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
        if not 0.0 < cutoff_prob <= 1.0:
            raise ValueError(f"cutoff_prob is {cutoff_prob}; it must be above 0 and at most 1")
        self.cutoff_prob = cutoff_prob
        self.loss_agg_mode = loss_agg_mode

    def __call__(  # type: ignore[override]  # the names are the fields
        self, logprob: Tensor, action_mask: Tensor, **kwargs: Any
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and ``sft_phi_loss``."""
        logprob_BR = masked(logprob, action_mask)
        probability_BR = logprob_BR.detach().exp()
        weight_BR = probability_BR * (1.0 - probability_BR)
        if self.cutoff_prob < 1.0:
            logprob_BR = logprob_BR.clamp(max=math.log(self.cutoff_prob))
        loss = aggregate_loss(-weight_BR * logprob_BR, action_mask, self.loss_agg_mode)
        return loss, {"sft_phi_loss": loss.detach().item()}
