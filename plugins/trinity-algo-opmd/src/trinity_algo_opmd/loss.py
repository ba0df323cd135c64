"""Compute OPMD's loss.

B rows of a micro-batch   R response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.algorithm import PolicyLossFn
from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import LossAggMode, aggregate_loss, masked

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["OPMDPolicyLossFn"]


class OPMDPolicyLossFn(PolicyLossFn):
    """Takes ``-A logprob / (1 + tau)``: no ratio, so the rows may come from any policy.

    arXiv 2505.17826 (appendix), 2501.12599. The regulariser of mirror descent, half the squared
    distance from a reference policy, is the KL function ``k2``, which ``algorithm_type: opmd``
    takes as its ``kl_loss_fn``; ``kl_coef`` weighs it.

    Args:
        tau: how strongly the policy is held where it is, 0 or above.
        loss_agg_mode: how tokens become one number.

    Raises:
        ValueError: no such mode, or ``tau`` is negative.
    """

    def __init__(self, tau: float = 1.0, loss_agg_mode: LossAggMode = "token-mean") -> None:
        check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
        if tau < 0:
            raise ValueError(f"tau is {tau}; it must be 0 or above")
        self.tau = tau
        self.loss_agg_mode = loss_agg_mode

    def __call__(  # type: ignore[override]  # the names are the fields
        self, logprob: Tensor, action_mask: Tensor, advantages: Tensor, **kwargs: Any
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and ``opmd_loss``."""
        losses_BR = -masked(advantages, action_mask) * masked(logprob, action_mask)
        loss = aggregate_loss(losses_BR, action_mask, self.loss_agg_mode) / (1.0 + self.tau)
        return loss, {"opmd_loss": loss.detach().item()}
