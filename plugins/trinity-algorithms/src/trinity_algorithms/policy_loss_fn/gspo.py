"""Compute GSPO's loss, clipped by the ratio of a whole response.

B rows of a micro-batch   R response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import MAX_LOG_RATIO, LossAggMode, aggregate_loss, masked, masked_mean
from trinity.algorithm.policy_loss_fn.base import PolicyLossFn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from trinity.algorithm.ops import Normalizer

__all__ = ["GSPOPolicyLossFn"]


class GSPOPolicyLossFn(PolicyLossFn):
    """Clips every token of a response by the response's own ratio (arXiv 2507.18071, GSPO-token).

    With ``s_i`` the mean of ``logprob - old_logprob`` over a row, the loss of a token is
    ``max(-A r, -A clip(r))`` with ``r = e^{s_i}``; the gradient is that of the token's own
    log-probability, so each token may have its own advantage.

    Args:
        clip_range: how far r may leave 1, on a side that has no range of its own; None: the
            paper's ranges, which are this small because r is a mean over tokens.
        clip_range_low: how far below 1; None: ``clip_range``, else 3e-4.
        clip_range_high: how far above 1; None: ``clip_range``, else 4e-4.
        loss_agg_mode: how tokens become one number; the paper's: the mean of the rows' means.

    Raises:
        ValueError: there is no such mode.
    """

    metric_normalizers: ClassVar[Mapping[str, Normalizer]] = {
        "pg_clipfrac": "tokens",
        "ppo_kl": "tokens",
        "ppo_kl_seq": "rows",
    }

    def __init__(
        self,
        *,
        clip_range: float | None = None,
        clip_range_low: float | None = None,
        clip_range_high: float | None = None,
        loss_agg_mode: LossAggMode = "seq-mean-token-mean",
    ) -> None:
        check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
        self.clip_range_low = _first(clip_range_low, clip_range, 3e-4)
        self.clip_range_high = _first(clip_range_high, clip_range, 4e-4)
        self.loss_agg_mode = loss_agg_mode

    def __call__(  # type: ignore[override]  # the names are the fields
        self,
        logprob: Tensor,
        old_logprob: Tensor,
        action_mask: Tensor,
        advantages: Tensor,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and ``pg_loss, pg_clipfrac, ppo_kl, ppo_kl_seq``."""
        mask_BR = action_mask.bool()
        logprob_BR, advantages_BR = masked(logprob, mask_BR), masked(advantages, mask_BR)
        distance_BR = logprob_BR - masked(old_logprob, mask_BR)
        mean_B = masked_mean(distance_BR, mask_BR, -1).detach()
        held_B1 = mean_B.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)[:, None]
        ratio_BR = (logprob_BR - logprob_BR.detach() + held_B1).exp()
        clipped_BR = ratio_BR.clamp(1.0 - self.clip_range_low, 1.0 + self.clip_range_high)
        plain_BR, clipped_BR = -advantages_BR * ratio_BR, -advantages_BR * clipped_BR
        loss = aggregate_loss(plain_BR.maximum(clipped_BR), mask_BR, self.loss_agg_mode)
        is_clipped_BR = (clipped_BR > plain_BR).to(plain_BR.dtype)
        return loss, {
            "pg_loss": loss.detach().item(),
            "pg_clipfrac": masked_mean(is_clipped_BR, mask_BR).item(),
            "ppo_kl": masked_mean(-distance_BR.detach(), mask_BR).item(),
            "ppo_kl_seq": -mean_B.mean().item(),
        }


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)
