"""Compute CISPO's loss: policy gradient with a clipped weight.

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

__all__ = ["CISPOPolicyLossFn"]

_LIMIT = 30.0  # of the log-ratio, which carries no gradient here


class CISPOPolicyLossFn(PolicyLossFn):
    """Takes ``-A w logprob`` with ``w = clip(r, 1 - low, 1 + high)``, detached (arXiv 2506.13585).

    ``r = exp(logprob - old_logprob)``. A clipped token keeps its gradient, unlike in PPO; with
    ``enable_mask_clip`` it loses it where PPO's would be 0.

    Args:
        clip_range_low: how far w may fall below 1; 1: no lower bound.
        clip_range_high: how far w may rise above 1.
        enable_mask_clip: leave out tokens with ``r > 1 + mask_clip_range_high`` and A > 0, or
            ``r < 1 - mask_clip_range_low`` and A < 0.
        mask_clip_range_low: see there.
        mask_clip_range_high: see there.
        loss_agg_mode: how tokens become one number.

    Raises:
        ValueError: there is no such mode.
    """

    metric_normalizers: ClassVar[Mapping[str, Normalizer]] = {
        "ppo_kl": "tokens",
        "unmasked_frac": "tokens",
    }

    def __init__(
        self,
        *,
        clip_range_low: float = 1.0,
        clip_range_high: float = 0.28,
        enable_mask_clip: bool = False,
        mask_clip_range_low: float = 1.0,
        mask_clip_range_high: float = 0.28,
        loss_agg_mode: LossAggMode = "token-mean",
    ) -> None:
        check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
        self.clip_range_low = clip_range_low
        self.clip_range_high = clip_range_high
        self.enable_mask_clip = enable_mask_clip
        self.mask_clip_range_low = mask_clip_range_low
        self.mask_clip_range_high = mask_clip_range_high
        self.loss_agg_mode = loss_agg_mode

    def __call__(  # type: ignore[override]  # the names are the fields
        self,
        logprob: Tensor,
        old_logprob: Tensor,
        action_mask: Tensor,
        advantages: Tensor,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and ``cispo_loss, ppo_kl, unmasked_frac``."""
        mask_BR = action_mask.bool()
        advantages_BR = masked(advantages, mask_BR)
        log_ratio_BR = log_ratio(logprob.detach(), old_logprob, mask_BR, limit=_LIMIT)
        ratio_BR = log_ratio_BR.exp()
        weight_BR = ratio_BR.clamp(1.0 - self.clip_range_low, 1.0 + self.clip_range_high)
        kept_BR = self._kept(ratio_BR, advantages_BR)
        losses_BR = -advantages_BR * weight_BR * kept_BR * masked(logprob, mask_BR)
        loss = aggregate_loss(losses_BR, mask_BR, self.loss_agg_mode)
        return loss, {
            "cispo_loss": loss.detach().item(),
            "ppo_kl": masked_mean(-log_ratio_BR, mask_BR).item(),
            "unmasked_frac": masked_mean(kept_BR, mask_BR).item(),
        }

    def _kept(self, ratio_BR: Tensor, advantages_BR: Tensor) -> Tensor:
        if not self.enable_mask_clip:
            return ratio_BR.new_ones(ratio_BR.shape)
        has_risen_BR = (ratio_BR > 1.0 + self.mask_clip_range_high) & (advantages_BR > 0)
        has_fallen_BR = (ratio_BR < 1.0 - self.mask_clip_range_low) & (advantages_BR < 0)
        return (~(has_risen_BR | has_fallen_BR)).to(ratio_BR.dtype)
