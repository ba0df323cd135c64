"""Compute M2PO's loss, whose mask looks at all tokens of the batch.

B rows of a micro-batch   R response   T tokens of the whole batch in the trust region
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import MAX_LOG_RATIO, LossAggMode, aggregate_loss, masked, masked_mean
from trinity.algorithm.policy_loss_fn.base import PolicyLossFn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from trinity.algorithm.ops import Normalizer

__all__ = ["M2POPolicyLossFn"]

_OF_THE_BATCH = (
    "m2po/m2_before",
    "m2po/m2_after",
    "m2po/masked_fraction",
    "m2po/trust_region_fraction",
)


class M2POPolicyLossFn(PolicyLossFn):
    """Masks the tokens whose policy moved most, for stale rollouts (arXiv 2510.01161, algorithm 1).

    With ``d = log r`` the distance of the policy before the step from the one that sampled, a
    token is in the trust region where its update leads farther away: ``A > 0`` and ``d > 0``, or
    ``A < 0`` and ``d < 0``. Of these tokens of the whole batch, those with the largest ``d^2`` are
    masked until the mean ``d^2`` of the others is at most the threshold; equal values are masked
    together. The loss of a token is ``-A r``, and 0 where it is masked; the mean counts all tokens.

    Args:
        m2_threshold: the largest mean of d^2 in the trust region, 0 or above.
        loss_agg_mode: how tokens become one number; the paper's: the mean of all tokens.
        log_ratio_clip: d is held within it in r, above 0; the gradient is not.

    Raises:
        ValueError: an argument is out of its range.
    """

    metric_normalizers: ClassVar[Mapping[str, Normalizer]] = {
        "ppo_kl": "tokens",
        **dict.fromkeys(_OF_THE_BATCH, "tokens"),
    }

    def __init__(
        self,
        *,
        m2_threshold: float = 0.04,
        loss_agg_mode: LossAggMode = "token-mean",
        log_ratio_clip: float = MAX_LOG_RATIO,
    ) -> None:
        check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
        if not 0.0 <= m2_threshold < float("inf"):
            raise ValueError(f"m2_threshold is {m2_threshold}; it must be finite, and 0 or above")
        if not 0.0 < log_ratio_clip <= MAX_LOG_RATIO:
            raise ValueError(
                f"log_ratio_clip is {log_ratio_clip}; it must be above 0 and at most "
                f"{MAX_LOG_RATIO:g}"
            )
        self.m2_threshold, self.loss_agg_mode = m2_threshold, loss_agg_mode
        self.log_ratio_clip = log_ratio_clip

    def __call__(  # type: ignore[override]  # noqa: PLR0913, PLR0917 -- the names are the fields
        self,
        logprob: Tensor,
        old_logprob: Tensor,
        policy_logprob: Tensor,
        action_mask: Tensor,
        advantages: Tensor,
        sampled_logprob: Tensor | None = None,
        whole_policy_logprob: Tensor | None = None,
        whole_old_logprob: Tensor | None = None,
        whole_sampled_logprob: Tensor | None = None,
        whole_action_mask: Tensor | None = None,
        whole_advantages: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and ``pg_loss, ppo_kl, m2po/...``.

        ``policy_logprob`` is of the policy before the step; the ``whole_`` fields are those of all
        micro-batches, without which this one is the whole batch.
        """
        behind = old_logprob if sampled_logprob is None else sampled_logprob
        own = Distances.of(policy_logprob, behind, action_mask, advantages)
        whole, whole_behind = own, _first(whole_sampled_logprob, whole_old_logprob)
        if whole_behind is not None:
            whole = Distances.of(
                _given(whole_policy_logprob),
                whole_behind,
                _given(whole_action_mask),
                _given(whole_advantages),
            )
        limit = largest_kept(whole.squares_T, threshold=self.m2_threshold)
        is_kept_BR = own.mask_BR & ~(own.is_inside_BR & (own.distance_BR.square() > limit))
        loss, distance_BR = self._loss(logprob, behind, advantages, own.mask_BR, is_kept_BR)
        return loss, {
            "pg_loss": loss.detach().item(),
            "ppo_kl": masked_mean(-distance_BR, own.mask_BR).item(),
            **whole.metrics(limit),
        }

    def _loss(
        self,
        logprob: Tensor,
        behind: Tensor,
        advantages: Tensor,
        mask_BR: Tensor,
        is_kept_BR: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the loss, and how far each token is from the policy that sampled it."""
        logprob_BR = masked(logprob, mask_BR)
        distance_BR = (logprob_BR - masked(behind, mask_BR)).detach()
        held_BR = distance_BR.clamp(-self.log_ratio_clip, self.log_ratio_clip)
        ratio_BR = (logprob_BR - logprob_BR.detach() + held_BR).exp()
        losses_BR = -masked(advantages, mask_BR) * ratio_BR
        return aggregate_loss(
            masked(losses_BR, is_kept_BR), mask_BR, self.loss_agg_mode
        ), distance_BR


@dataclass(frozen=True, kw_only=True)
class Distances:
    """How far the policy before the step is from the one that sampled."""

    mask_BR: Tensor  # bool: the model's tokens
    distance_BR: Tensor  # log r, 0 where masked
    is_inside_BR: Tensor  # bool: in the trust region

    @classmethod
    def of(
        cls, policy_BR: Tensor, behind_BR: Tensor, mask_BR: Tensor, advantages_BR: Tensor
    ) -> Distances:
        """Return the distances of some rows.

        Args:
            policy_BR: log-probabilities before the step, without a gradient.
            behind_BR: of the policy that sampled.
            mask_BR: the model's tokens.
            advantages_BR: of each token.
        """
        is_on_BR = mask_BR.bool()
        policy_BR, behind_BR = policy_BR.detach().double(), behind_BR.to(policy_BR.device).double()
        distance_BR = masked(policy_BR, is_on_BR) - masked(behind_BR, is_on_BR)
        direction_BR = masked(advantages_BR, is_on_BR).sign() * distance_BR.sign()
        return cls(mask_BR=is_on_BR, distance_BR=distance_BR, is_inside_BR=direction_BR > 0)

    @property
    def squares_T(self) -> Tensor:
        """Return d^2 of the tokens in the trust region."""
        return self.distance_BR[self.is_inside_BR].square()

    def metrics(self, limit: float) -> dict[str, float]:
        """Return the mean d^2 before and after, and which parts of all tokens they are."""
        squares_T, num_tokens = self.squares_T, max(int(self.mask_BR.sum()), 1)
        kept_T = squares_T[squares_T <= limit]
        values = (
            _mean(squares_T),
            _mean(kept_T),
            (len(squares_T) - len(kept_T)) / num_tokens,
            len(squares_T) / num_tokens,
        )
        return dict(zip(_OF_THE_BATCH, values, strict=True))


def largest_kept(squares_T: Tensor, *, threshold: float) -> float:
    """Return the largest value that is kept; those above it are masked.

    >>> largest_kept(torch.tensor([1.0, 9.0, 3.0, 25.0]), threshold=5.0)  # means 1, 2, 4.3, 9.5
    9.0
    >>> largest_kept(torch.tensor([1.0, 9.0, 9.0]), threshold=6.0)  # means 1, 5, 6.3: both or none
    1.0

    Args:
        squares_T: d^2 of the tokens in the trust region.
        threshold: what the mean of the kept values may be.
    """
    sorted_T = squares_T.double().sort().values
    counts_T = torch.arange(1, len(sorted_T) + 1, device=sorted_T.device)
    num_kept = int((sorted_T.cumsum(0) / counts_T <= threshold).sum())
    if num_kept == len(sorted_T):
        return float("inf")
    below_T = sorted_T[sorted_T < sorted_T[num_kept]]  # equal values fall together
    return float(below_T[-1]) if len(below_T) else -1.0


def _mean(values_T: Tensor) -> float:
    return float(values_T.mean()) if len(values_T) else 0.0


def _first(*tensors: Tensor | None) -> Tensor | None:
    return next((tensor for tensor in tensors if tensor is not None), None)


def _given(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise ValueError("m2po got some fields of the whole batch without the others")
    return tensor
