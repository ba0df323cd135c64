"""Compute PPO's clipped loss.

B rows of a micro-batch   R response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import (
    LossAggMode,
    aggregate_loss,
    log_ratio,
    masked,
    masked_mean,
    masked_sum,
    numbers_of,
)
from trinity.algorithm.policy_loss_fn.base import PolicyLossFn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from trinity.algorithm.ops import Normalizer

__all__ = ["PPOPolicyLossFn"]


class PPOPolicyLossFn(PolicyLossFn):
    """Takes the larger of the plain and the clipped loss (arXiv 1707.06347).

    With ``r = exp(logprob - old_logprob)`` the loss of a token is ``max(-A r, -A clip(r))``, and no
    more than ``-A clip_ratio_c`` where ``A < 0`` (dual clip, arXiv 1912.09729).

    Args:
        clip_range: how far r may leave 1, on a side that has no range of its own.
        clip_range_low: how far below 1; None: ``clip_range``.
        clip_range_high: how far above 1 (arXiv 2503.14476); None: ``clip_range``.
        clip_ratio_c: the cap of the dual clip, above 1.
        loss_agg_mode: how tokens become one number.
        enable_sequence_masking: leave out the negative rows that have moved away from the policy
            that sampled them (arXiv 2512.02556).
        delta_sequence_masking: the mean ``old_logprob - logprob`` from which a row has done so.
        fallback_to_policy_gradient: take the current policy as the old one, so that r is 1.

    Raises:
        ValueError: ``clip_ratio_c`` is not above 1, or there is no such mode.
    """

    metric_normalizers: ClassVar[Mapping[str, Normalizer]] = {
        "pg_clipfrac": "tokens",
        "pg_clipfrac_lower": "tokens",
        "ppo_kl": "tokens",
        "seq_mask/masked_tokens": "tokens",
        "seq_mask/mean_sequence_kl": "rows",
    }

    def __init__(  # noqa: PLR0913 -- the options of the loss
        self,
        *,
        clip_range: float = 0.2,
        clip_range_low: float | None = None,
        clip_range_high: float | None = None,
        clip_ratio_c: float = 3.0,
        loss_agg_mode: LossAggMode = "token-mean",
        enable_sequence_masking: bool = False,
        delta_sequence_masking: float = 0.1,
        fallback_to_policy_gradient: bool = False,
    ) -> None:
        check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
        if clip_ratio_c <= 1.0:
            raise ValueError(f"clip_ratio_c is {clip_ratio_c}; it must be above 1")
        self.clip_range_low = clip_range if clip_range_low is None else clip_range_low
        self.clip_range_high = clip_range if clip_range_high is None else clip_range_high
        self.clip_ratio_c = clip_ratio_c
        self.loss_agg_mode = loss_agg_mode
        self.enable_sequence_masking = enable_sequence_masking
        self.delta_sequence_masking = delta_sequence_masking
        self.fallback_to_policy_gradient = fallback_to_policy_gradient

    def __call__(  # type: ignore[override]  # the names are the fields
        self,
        logprob: Tensor,
        old_logprob: Tensor,
        action_mask: Tensor,
        advantages: Tensor,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and ``pg_loss, ppo_kl, pg_clipfrac, pg_clipfrac_lower``."""
        mask_BR = action_mask.bool()
        old_BR = logprob.detach() if self.fallback_to_policy_gradient else old_logprob
        log_ratio_BR = log_ratio(logprob, old_BR, mask_BR)
        advantages_BR = masked(advantages, mask_BR)
        losses_BR, metrics = self._token_losses(log_ratio_BR, advantages_BR, mask_BR)
        if self.enable_sequence_masking:
            dropped_BR, row_kl = self._left_rows(log_ratio_BR.detach(), advantages_BR, mask_BR)
            losses_BR = losses_BR.masked_fill(dropped_BR, 0.0)
            metrics |= _sequence_metrics(dropped_BR, row_kl, mask_BR)
        loss = aggregate_loss(losses_BR, mask_BR, self.loss_agg_mode)
        return loss, metrics | {"pg_loss": loss.detach().item()}

    def _token_losses(
        self, log_ratio_BR: Tensor, advantages_BR: Tensor, mask_BR: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        ratio_BR = log_ratio_BR.exp()
        clipped_BR = ratio_BR.clamp(1.0 - self.clip_range_low, 1.0 + self.clip_range_high)
        plain_BR, clipped_BR = -advantages_BR * ratio_BR, -advantages_BR * clipped_BR
        larger_BR = plain_BR.maximum(clipped_BR)
        cap_BR = -advantages_BR * self.clip_ratio_c
        is_negative_BR = advantages_BR < 0
        losses_BR = larger_BR.minimum(cap_BR).where(is_negative_BR, larger_BR)
        is_capped_BR = (larger_BR > cap_BR) & is_negative_BR
        means = (
            masked_mean((clipped_BR > plain_BR).to(plain_BR.dtype), mask_BR),
            masked_mean(is_capped_BR.to(plain_BR.dtype), mask_BR),
            masked_mean(-log_ratio_BR.detach(), mask_BR),
        )
        names = ("pg_clipfrac", "pg_clipfrac_lower", "ppo_kl")
        return losses_BR, dict(zip(names, numbers_of(*means), strict=True))

    def _left_rows(
        self, log_ratio_BR: Tensor, advantages_BR: Tensor, mask_BR: Tensor
    ) -> tuple[Tensor, Tensor]:
        row_kl_B = masked_sum(-log_ratio_BR, mask_BR, -1) / (mask_BR.sum(-1) + 1e-10)
        has_left_B1 = (row_kl_B > self.delta_sequence_masking)[:, None]
        return has_left_B1 & (advantages_BR < 0) & mask_BR, row_kl_B


def _sequence_metrics(dropped_BR: Tensor, row_kl_B: Tensor, mask_BR: Tensor) -> dict[str, float]:
    masked_share = dropped_BR.sum().double() / (mask_BR.sum().double() + 1e-10)
    return {
        "seq_mask/masked_tokens": masked_share.item(),
        "seq_mask/mean_sequence_kl": row_kl_B.mean().item(),
    }
