"""Compute TOPR's loss: bad responses count for no more than the policy still makes them.

B rows of a micro-batch   R response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import (
    MAX_LOG_RATIO,
    LossAggMode,
    aggregate_loss,
    log_ratio,
    masked,
    masked_mean,
    masked_sum,
)
from trinity.algorithm.policy_loss_fn.base import PolicyLossFn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from trinity.algorithm.ops import Normalizer

__all__ = ["TOPRPolicyLossFn"]


class TOPRPolicyLossFn(PolicyLossFn):
    """Takes ``-alpha A logprob``: tapered off-policy REINFORCE (arXiv 2503.14286).

    alpha, detached, is 1 where A is above the threshold, and ``min(rho, 1)`` elsewhere, with
    ``rho = exp(sum_t (logprob - old_logprob))`` of the whole response. Trinity-RFT takes the ratio
    of the single token instead; the paper's is the response's.

    Args:
        advantage_threshold: the largest advantage of a token that is tapered.
        loss_agg_mode: how tokens become one number.

    Raises:
        ValueError: there is no such mode.
    """

    metric_normalizers: ClassVar[Mapping[str, Normalizer]] = {
        "avg_alpha": "tokens",
        "avg_ratio": "tokens",
    }

    def __init__(
        self, *, advantage_threshold: float = 0.0, loss_agg_mode: LossAggMode = "token-mean"
    ) -> None:
        check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
        self.advantage_threshold = advantage_threshold
        self.loss_agg_mode = loss_agg_mode

    def __call__(  # type: ignore[override]  # the names are the fields
        self,
        logprob: Tensor,
        old_logprob: Tensor,
        action_mask: Tensor,
        advantages: Tensor,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and ``topr_loss, avg_alpha``, and ``avg_ratio``, that of the tokens."""
        mask_BR = action_mask.bool()
        logprob_BR, advantages_BR = masked(logprob, mask_BR), masked(advantages, mask_BR)
        distance_BR = logprob_BR.detach() - masked(old_logprob, mask_BR)
        log_rho_B = masked_sum(distance_BR, mask_BR, -1).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        rho_BR = log_rho_B.exp()[:, None].expand(mask_BR.shape)
        is_tapered_BR = advantages_BR <= self.advantage_threshold
        alpha_BR = rho_BR.clamp(max=1.0).where(is_tapered_BR, rho_BR.new_ones(()))
        losses_BR = -alpha_BR * advantages_BR * logprob_BR
        loss = aggregate_loss(losses_BR, mask_BR, self.loss_agg_mode)
        ratio_BR = log_ratio(logprob.detach(), old_logprob, mask_BR).exp()
        return loss, {
            "topr_loss": loss.detach().item(),
            "avg_alpha": masked_mean(alpha_BR, mask_BR).item(),
            "avg_ratio": masked_mean(ratio_BR, mask_BR).item(),
        }
