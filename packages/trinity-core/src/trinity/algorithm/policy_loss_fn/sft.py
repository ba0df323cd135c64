"""Compute the loss of supervised fine-tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import LossAggMode, aggregate_loss, masked
from trinity.algorithm.policy_loss_fn.base import PolicyLossFn

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SFTPolicyLossFn"]


class SFTPolicyLossFn(PolicyLossFn):
    """Takes the negative log-probability of each unmasked token.

    Args:
        loss_agg_mode: how tokens become one number.
    """

    def __init__(self, *, loss_agg_mode: LossAggMode = "token-mean") -> None:
        check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
        self.loss_agg_mode = loss_agg_mode

    def __call__(  # type: ignore[override]  # the names are the fields
        self, logprob: Tensor, action_mask: Tensor, **kwargs: Any
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss, in nats, and ``sft_loss``."""
        loss = aggregate_loss(-masked(logprob, action_mask), action_mask, self.loss_agg_mode)
        return loss, {"sft_loss": loss.detach().item()}
