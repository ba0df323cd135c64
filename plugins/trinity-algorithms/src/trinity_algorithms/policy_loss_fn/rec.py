"""Compute REC's loss: policy gradient, clipped, weighted and regularised as one chooses.

B rows of a micro-batch   R response   r = exp(logprob - old_logprob), detached
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import (
    LossAggMode,
    aggregate_loss,
    log_ratio,
    masked,
    masked_mean,
)
from trinity.algorithm.policy_loss_fn.base import PolicyLossFn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from trinity.algorithm.ops import Normalizer

__all__ = ["RECPolicyLossFn"]

ClipMode = Literal["none", "one-side", "two-side", "ring", "gspo-one-side"]
Weight = Literal["none", "importance_sampling", "gspo_importance_sampling", "advantage"]
Regularizer = Literal["none", "k2", "forward-kl"]

_LIMIT = 30.0  # of the log-ratio, which carries no gradient here


class RECPolicyLossFn(PolicyLossFn):
    """Takes ``-A w logprob`` of the tokens in range, plus a regulariser (arXiv 2509.24203).

    ``one-side`` with ``importance_sampling`` has exactly the gradient of PPO's clip.

    Args:
        epsilon_low: how far r may fall below 1; above 0, at most 1.
        epsilon_high: how far it may rise above 1.
        epsilon_low_prime: ``ring``: from here below 1, good tokens are in range again; above 0, at
            most 1.
        epsilon_high_prime: ``ring``: from here above 1, bad tokens are in range again.
        clip_mode: which tokens are in range. ``none``: all; ``two-side``: r within both bounds;
            ``one-side``: r below the upper bound where A >= 0, above the lower where A <= 0;
            ``gspo-one-side``: the same for the mean ratio of the row; ``ring``: two-side, and what
            the primes let in.
        weight: w. ``importance_sampling``: r; ``gspo_importance_sampling``: the row's mean ratio;
            ``advantage``: ``exp(A / temp)``.
        regularizer: ``k2``: ``coef (logprob - old_logprob)^2`` of every token; ``forward-kl``:
            ``-coef logprob`` of every token.
        regularizer_coef: coef, 0 or above.
        temp: of the weight ``advantage``, above 0.

    Raises:
        ValueError: an argument is out of its range, or a word is none of the choices.
    """

    metric_normalizers: ClassVar[Mapping[str, Normalizer]] = {
        "pg_clipfrac": "tokens",
    }

    def __init__(  # noqa: PLR0913 -- the options of the loss
        self,
        *,
        epsilon_low: float = 0.2,
        epsilon_high: float = 0.2,
        epsilon_low_prime: float = 0.6,
        epsilon_high_prime: float = 2.0,
        clip_mode: ClipMode = "none",
        weight: Weight = "none",
        regularizer: Regularizer = "none",
        regularizer_coef: float = 0.0,
        temp: float = 1.0,
    ) -> None:
        check_choice("clip_mode", clip_mode, ClipMode)
        check_choice("weight", weight, Weight)
        check_choice("regularizer", regularizer, Regularizer)
        for name, value in (("epsilon_low", epsilon_low), ("epsilon_low_prime", epsilon_low_prime)):
            if not 0.0 < value <= 1.0:
                raise ValueError(f"{name} is {value}; it must be above 0 and at most 1")
        if regularizer_coef < 0:
            raise ValueError(f"regularizer_coef is {regularizer_coef}; it must be 0 or above")
        if temp <= 0:
            raise ValueError(f"temp is {temp}; it must be above 0")
        self.epsilon_low, self.epsilon_high = epsilon_low, epsilon_high
        self.epsilon_low_prime, self.epsilon_high_prime = epsilon_low_prime, epsilon_high_prime
        self.clip_mode, self.weight = clip_mode, weight
        self.regularizer, self.regularizer_coef = regularizer, regularizer_coef
        self.temp = temp
        is_by_row = clip_mode == "gspo-one-side"
        self.loss_agg_mode: LossAggMode = "seq-mean-token-mean" if is_by_row else "token-mean"

    def __call__(  # type: ignore[override]  # the names are the fields
        self,
        logprob: Tensor,
        old_logprob: Tensor,
        action_mask: Tensor,
        advantages: Tensor,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and ``pg_loss``, and the share of clipped tokens, ``pg_clipfrac``."""
        mask_BR = action_mask.bool()
        logprob_BR, advantages_BR = masked(logprob, mask_BR), masked(advantages, mask_BR)
        ratio_BR = log_ratio(logprob.detach(), old_logprob, mask_BR, limit=_LIMIT).exp()
        row_ratio_BR = _row_ratio(logprob.detach(), old_logprob, mask_BR)
        in_range_BR = self._in_range(ratio_BR, row_ratio_BR, advantages_BR)
        weight_BR = self._weight(ratio_BR, row_ratio_BR, advantages_BR)
        losses_BR = -advantages_BR * weight_BR * logprob_BR * in_range_BR.to(logprob.dtype)
        if self.regularizer == "k2":
            distance_BR = logprob_BR - masked(old_logprob, mask_BR)
            losses_BR = losses_BR + self.regularizer_coef * distance_BR.square()
        elif self.regularizer == "forward-kl":
            losses_BR = losses_BR - self.regularizer_coef * logprob_BR
        loss = aggregate_loss(losses_BR, mask_BR, self.loss_agg_mode)
        clipped = masked_mean((~in_range_BR).to(logprob.dtype), mask_BR)
        return loss, {"pg_loss": loss.detach().item(), "pg_clipfrac": clipped.item()}

    def _in_range(self, ratio_BR: Tensor, row_ratio_BR: Tensor, advantages_BR: Tensor) -> Tensor:
        if self.clip_mode == "none":
            return ratio_BR.new_ones(ratio_BR.shape).bool()
        judged_BR = row_ratio_BR if self.clip_mode == "gspo-one-side" else ratio_BR
        is_low_enough_BR = judged_BR <= 1.0 + self.epsilon_high
        is_high_enough_BR = judged_BR >= 1.0 - self.epsilon_low
        is_good_BR, is_bad_BR = advantages_BR >= 0, advantages_BR <= 0
        if self.clip_mode in {"one-side", "gspo-one-side"}:
            return (is_good_BR & is_low_enough_BR) | (is_bad_BR & is_high_enough_BR)
        in_both_BR = is_low_enough_BR & is_high_enough_BR
        if self.clip_mode == "two-side":
            return in_both_BR
        is_far_below_BR = ratio_BR <= 1.0 - self.epsilon_low_prime
        is_far_above_BR = ratio_BR >= 1.0 + self.epsilon_high_prime
        return in_both_BR | (is_good_BR & is_far_below_BR) | (is_bad_BR & is_far_above_BR)

    def _weight(self, ratio_BR: Tensor, row_ratio_BR: Tensor, advantages_BR: Tensor) -> Tensor:
        if self.weight == "importance_sampling":
            return ratio_BR
        if self.weight == "gspo_importance_sampling":
            return row_ratio_BR
        if self.weight == "advantage":
            return (advantages_BR / self.temp).exp()
        return ratio_BR.new_ones(())


def _row_ratio(logprob_BR: Tensor, old_BR: Tensor, mask_BR: Tensor) -> Tensor:
    distance_BR = masked(logprob_BR, mask_BR) - masked(old_BR, mask_BR)
    mean_B = masked_mean(distance_BR, mask_BR, -1).clamp(-_LIMIT, _LIMIT)
    return mean_B.exp()[:, None].expand(mask_BR.shape)
