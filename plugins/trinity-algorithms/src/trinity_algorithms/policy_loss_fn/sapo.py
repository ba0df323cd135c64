"""Compute SAPO's loss, with a soft gate in place of a clip.

B rows of a micro-batch   R response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import LossAggMode, aggregate_loss, log_ratio, masked, masked_mean
from trinity.algorithm.policy_loss_fn.base import PolicyLossFn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from trinity.algorithm.ops import Normalizer

__all__ = ["SAPOPolicyLossFn"]


class SAPOPolicyLossFn(PolicyLossFn):
    """Takes ``-A (4 / tau) sigmoid(tau (r - 1))``, differentiated through r (arXiv 2511.20347).

    ``r = exp(logprob - old_logprob)``. The gradient of a token is the policy gradient where r is 1
    and fades away smoothly on both sides, faster the larger tau. Trinity-RFT weighs the
    log-probability by the gate's value instead, which does not fade; the paper differentiates it.

    Args:
        tau_pos: the temperature of tokens with A > 0.
        tau_neg: that of the others, at least ``tau_pos``: they are the less stable ones.
        loss_agg_mode: how tokens become one number; the paper's is ``seq-mean-token-mean``.

    Raises:
        ValueError: ``tau_pos`` is not above 0 or above ``tau_neg``, or there is no such mode.
    """

    metric_normalizers: ClassVar[Mapping[str, Normalizer]] = {
        "ppo_kl": "tokens",
        "avg_soft_gate": "tokens",
        "avg_ratio": "tokens",
        "pos_adv_frac": "tokens",
    }

    def __init__(
        self,
        *,
        tau_pos: float = 1.0,
        tau_neg: float = 1.05,
        loss_agg_mode: LossAggMode = "token-mean",
    ) -> None:
        check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
        if not 0.0 < tau_pos <= tau_neg:
            raise ValueError(
                f"tau_pos is {tau_pos} and tau_neg {tau_neg}; it must be 0 < tau_pos <= tau_neg"
            )
        self.tau_pos = tau_pos
        self.tau_neg = tau_neg
        self.loss_agg_mode = loss_agg_mode

    def __call__(  # type: ignore[override]  # the names are the fields
        self,
        logprob: Tensor,
        old_logprob: Tensor,
        action_mask: Tensor,
        advantages: Tensor,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and ``sapo_loss, ppo_kl, avg_soft_gate, avg_ratio, pos_adv_frac``."""
        mask_BR = action_mask.bool()
        advantages_BR = masked(advantages, mask_BR)
        log_ratio_BR = log_ratio(logprob, old_logprob, mask_BR)
        ratio_BR = log_ratio_BR.exp()
        is_good_BR = (advantages_BR > 0).to(ratio_BR.dtype)
        tau_BR = is_good_BR * self.tau_pos + (1.0 - is_good_BR) * self.tau_neg
        gate_BR = (tau_BR * (ratio_BR - 1.0)).sigmoid() * (4.0 / tau_BR)
        loss = aggregate_loss(-advantages_BR * gate_BR, mask_BR, self.loss_agg_mode)
        return loss, {
            "sapo_loss": loss.detach().item(),
            "ppo_kl": masked_mean(-log_ratio_BR.detach(), mask_BR).item(),
            "avg_soft_gate": masked_mean(gate_BR.detach(), mask_BR).item(),
            "avg_ratio": masked_mean(ratio_BR.detach(), mask_BR).item(),
            "pos_adv_frac": masked_mean(is_good_BR, mask_BR).item(),
        }
