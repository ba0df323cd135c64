"""Correct a batch for what the rollout engine and the trainer disagree about.

B rows of a batch   R response   w = exp(old_logprob - rollout_logprob)

The engine samples from slightly other probabilities than the trainer computes for the same weights
(other kernels, other precision), so a batch is off-policy before the first step. Two remedies,
alone or together: weigh tokens by w, cut off at a threshold (truncated importance sampling), or
leave out the rows that the two see too differently (rejection)::

    correction = RolloutCorrection(rollout_is="token")
    corrected = correction.of(old_logprob, rollout_logprob, action_mask)
    loss_fn(logprob=with_weighted_gradient(logprob, corrected.weight_BR),
            action_mask=corrected.mask_BR, ...)

It works with every loss: the gradient of each token's log-probability is multiplied by its weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import MAX_LOG_RATIO, log_ratio, masked_mean, masked_sum

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Corrected", "RolloutCorrection", "with_weighted_gradient"]

Weighing = Literal["token", "sequence"]
Rejection = Literal["sequence", "geometric"]


@dataclass(frozen=True, kw_only=True)
class Corrected:
    """What a batch's loss is computed with."""

    weight_BR: Tensor  # of each token's gradient, without a gradient; 0 where masked
    mask_BR: Tensor  # the action mask without the rejected rows
    metrics: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class RolloutCorrection:
    """How a batch is corrected; the fields are those of the published dict (as in verl).

    Attributes:
        rollout_is: weigh by w of the token, or by the product of w over the response; None: do not.
        rollout_is_threshold: the largest weight, above 0 (truncated importance sampling).
        rollout_rs: leave out rows by the product of w over the response, or by its geometric mean
            (``geometric``, which long responses bear better); None: none.
        rollout_rs_threshold: the largest ratio of a row that stays; None: rollout_is_threshold.
        rollout_rs_threshold_lower: the smallest one; None: one by the largest.

    Raises:
        ValueError: a word is none of the choices, a threshold is not above 0, or no ratio lies
            between the smallest and the largest.
    """

    rollout_is: Weighing | None = None
    rollout_is_threshold: float = 2.0
    rollout_rs: Rejection | None = None
    rollout_rs_threshold: float | None = None
    rollout_rs_threshold_lower: float | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.rollout_is is not None:
            check_choice("rollout_is", self.rollout_is, Weighing)
        if self.rollout_rs is not None:
            check_choice("rollout_rs", self.rollout_rs, Rejection)
        for name, value in (
            ("rollout_is_threshold", self.rollout_is_threshold),
            ("rollout_rs_threshold", self.rollout_rs_threshold),
            ("rollout_rs_threshold_lower", self.rollout_rs_threshold_lower),
        ):
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        lower, upper = self._bounds
        if self.rollout_rs is not None and lower >= upper:
            raise ValueError(
                f"rollout_correction keeps rows from {lower} to {upper}, which is none; the lower "
                "threshold must be below the upper"
            )

    def of(self, old_BR: Tensor, rollout_BR: Tensor, mask_BR: Tensor) -> Corrected:
        """Return weights, the mask without rejected rows, and metrics.

        Args:
            old_BR: the trainer's log-probabilities under the weights that sampled.
            rollout_BR: the engine's.
            mask_BR: the action mask.
        """
        mask_BR = mask_BR.bool()
        distance_BR = log_ratio(old_BR.detach(), rollout_BR.detach(), mask_BR)
        kept_B = self._kept_rows(distance_BR, mask_BR)
        weight_BR, is_cut_BR = self._weights(distance_BR)
        left_BR = mask_BR & kept_B[:, None]
        metrics = {
            "rollout_correction/kl": masked_mean(-distance_BR, mask_BR).item(),
            "rollout_correction/weight_mean": masked_mean(weight_BR, mask_BR).item(),
            "rollout_correction/truncated_frac": masked_mean(
                is_cut_BR.to(weight_BR.dtype), mask_BR
            ).item(),
            "rollout_correction/rejected_frac": 1.0 - kept_B.double().mean().item(),
        }
        return Corrected(
            weight_BR=weight_BR.masked_fill(~left_BR, 0.0), mask_BR=left_BR, metrics=metrics
        )

    def _weights(self, distance_BR: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weight of each token, and which were cut off."""
        if self.rollout_is is None:
            ones_BR = distance_BR.new_ones(distance_BR.shape)
            return ones_BR, ones_BR < 0
        ratio_BR = distance_BR.exp()
        if self.rollout_is == "sequence":
            total_B1 = distance_BR.sum(-1, keepdim=True).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
            ratio_BR = total_B1.exp().expand(distance_BR.shape)
        return ratio_BR.clamp(max=self.rollout_is_threshold), ratio_BR > self.rollout_is_threshold

    def _kept_rows(self, distance_BR: Tensor, mask_BR: Tensor) -> Tensor:
        if self.rollout_rs is None:
            return mask_BR.new_ones(len(mask_BR))
        total_B = masked_sum(distance_BR, mask_BR, -1)
        if self.rollout_rs == "geometric":
            total_B = masked_mean(distance_BR, mask_BR, -1)
        ratio_B = total_B.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        lower, upper = self._bounds
        return (ratio_B >= lower) & (ratio_B <= upper)

    @property
    def _bounds(self) -> tuple[float, float]:
        """Return the smallest and the largest ratio of a row that stays."""
        upper = self.rollout_rs_threshold or self.rollout_is_threshold
        return self.rollout_rs_threshold_lower or 1.0 / upper, upper


def with_weighted_gradient(logprob_BR: Tensor, weight_BR: Tensor) -> Tensor:
    """Return the same numbers, with each one's gradient multiplied by its weight.

    A loss that is a sum over tokens gets exactly the gradient of its weighted sum. The loss itself
    is not weighted.
    """
    fixed_BR = logprob_BR.detach()
    return fixed_BR + weight_BR.detach() * (logprob_BR - fixed_BR)
