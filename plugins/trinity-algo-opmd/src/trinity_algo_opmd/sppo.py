"""Compute SPPO's loss, a squared penalty's gradient within a range.

B rows of a micro-batch   R response
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm import PolicyLossFn
from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import LossAggMode, aggregate_loss, masked, masked_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from trinity.algorithm.ops import Normalizer

__all__ = ["SPPOPolicyLossFn"]


class SPPOPolicyLossFn(PolicyLossFn):
    """Takes ``-A ln r`` where ``1 / (1 + epsilon) <= r <= 1 + epsilon``, else 0 (arXiv 2108.05828).

    ``r = exp(logprob - old_logprob)``. A token out of range has no gradient.

    Args:
        epsilon: how far r may leave 1, above 0.
        loss_agg_mode: how tokens become one number.

    Raises:
        ValueError: no such mode, or ``epsilon`` is not above 0.
    """

    metric_normalizers: ClassVar[Mapping[str, Normalizer]] = {
        "pg_clipfrac": "tokens",
    }

    def __init__(self, epsilon: float = 0.3, loss_agg_mode: LossAggMode = "token-mean") -> None:
        check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
        if epsilon <= 0:
            raise ValueError(f"epsilon is {epsilon}; it must be above 0")
        self.epsilon = epsilon
        self.loss_agg_mode = loss_agg_mode

    def __call__(  # type: ignore[override]  # the names are the fields
        self,
        logprob: Tensor,
        old_logprob: Tensor,
        action_mask: Tensor,
        advantages: Tensor,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss, ``pg_loss``, and the share of tokens out of range, ``pg_clipfrac``."""
        mask_BR = action_mask.bool()
        log_ratio_BR = masked(logprob, mask_BR) - masked(old_logprob, mask_BR)
        is_outside_BR = log_ratio_BR.detach().abs() > math.log1p(self.epsilon)
        losses_BR = -masked(advantages, mask_BR) * log_ratio_BR
        losses_BR = losses_BR.masked_fill(is_outside_BR, 0.0)
        loss = aggregate_loss(losses_BR, mask_BR, self.loss_agg_mode)
        clipped = masked_mean(is_outside_BR.to(losses_BR.dtype), mask_BR)
        return loss, {"pg_loss": loss.detach().item(), "pg_clipfrac": clipped.item()}
