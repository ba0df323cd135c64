"""Compute the plain off-policy policy gradient.

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

__all__ = ["ImportanceSamplingPolicyLossFn"]


class ImportanceSamplingPolicyLossFn(PolicyLossFn):
    """Takes ``-A exp(logprob - old_logprob)``, without a clip (arXiv 1707.06347, eq. 6).

    The difference is held within 20 nats.

    Args:
        loss_agg_mode: how tokens become one number.
    """

    metric_normalizers: ClassVar[Mapping[str, Normalizer]] = {
        "ratio/mean": "tokens",
        "approx_kl": "tokens",
    }

    def __init__(self, *, loss_agg_mode: LossAggMode = "token-mean") -> None:
        check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
        self.loss_agg_mode = loss_agg_mode

    def __call__(  # type: ignore[override]  # the names are the fields
        self,
        logprob: Tensor,
        old_logprob: Tensor,
        action_mask: Tensor,
        advantages: Tensor,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and ``pg_loss, ratio/mean, approx_kl``."""
        mask_BR = action_mask.bool()
        log_ratio_BR = log_ratio(logprob, old_logprob, mask_BR)
        ratio_BR = log_ratio_BR.exp()
        losses_BR = -masked(advantages, mask_BR) * ratio_BR
        loss = aggregate_loss(losses_BR, mask_BR, self.loss_agg_mode)
        return loss, {
            "pg_loss": loss.detach().item(),
            "ratio/mean": masked_mean(ratio_BR.detach(), mask_BR).item(),
            "approx_kl": masked_mean(-log_ratio_BR.detach(), mask_BR).item(),
        }
