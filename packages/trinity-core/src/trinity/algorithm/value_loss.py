"""Compute a critic's loss.

B rows of a micro-batch   R response
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.algorithm.ops import LossAggMode, aggregate_loss, masked, masked_mean

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["clipped_value_loss"]


def clipped_value_loss(
    values_BR: Tensor,
    *,
    old_values_BR: Tensor,
    returns_BR: Tensor,
    mask_BR: Tensor,
    clip_range: float = 0.5,
    loss_agg_mode: LossAggMode = "token-mean",
) -> tuple[Tensor, dict[str, float]]:
    """Return half the squared error of a critic that may not move far, and ``vf_clipfrac``.

    ``max((v - R)^2, (clamp(v, v_old - c, v_old + c) - R)^2) / 2`` of each token (arXiv 1707.06347):
    beyond the range, the gradient is 0 where moving on would lower the error.

    Args:
        values_BR: what the critic says now.
        old_values_BR: what it said when the batch was made.
        returns_BR: what it should say.
        mask_BR: which tokens count.
        clip_range: how far it may move; above 0.
        loss_agg_mode: how tokens become one number.
    """
    values_BR = masked(values_BR, mask_BR)
    old_BR, returns_BR = masked(old_values_BR, mask_BR), masked(returns_BR, mask_BR)
    held_BR = values_BR.clamp(old_BR - clip_range, old_BR + clip_range)
    plain_BR, clipped_BR = (values_BR - returns_BR).square(), (held_BR - returns_BR).square()
    loss = 0.5 * aggregate_loss(plain_BR.maximum(clipped_BR), mask_BR, loss_agg_mode)
    is_clipped_BR = (clipped_BR > plain_BR).to(values_BR.dtype)
    return loss, {"vf_clipfrac": masked_mean(is_clipped_BR, mask_BR).item()}
