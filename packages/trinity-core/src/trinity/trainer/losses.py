"""Add up the losses of a micro-batch so that its share of the batch's gradient comes out.

B rows of a batch or micro-batch   R response
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.algorithm.fields import arguments_from
from trinity.algorithm.normalizer import Normalizer, normalizer_of_mode, weight_of_part
from trinity.algorithm.ops import masked

if TYPE_CHECKING:
    from torch import Tensor

    from trinity.common.batch import Fields
    from trinity.common.metrics import Metrics
    from trinity.trainer.parts import AlgorithmParts

__all__ = ["WeightedLoss", "weighted_loss"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightedLoss:
    """A micro-batch's share; the shares of a batch sum to the batch's loss and metrics."""

    loss: Tensor
    metrics: Metrics


def weighted_loss(parts: AlgorithmParts, fields: Fields, *, whole_mask_BR: Tensor) -> WeightedLoss:
    """Return the share of ``policy loss - entropy + KL``.

    Args:
        parts: the losses.
        fields: of the micro-batch, each ``[B, R]``: ``logprob``, ``action_mask``, what the losses
            name, and ``entropy`` where it is wanted.
        whole_mask_BR: the action mask of the batch, which the normalisers are counted over.
    """
    mask_BR = fields["action_mask"]

    def weight(normalizer: Normalizer) -> float:
        return weight_of_part(normalizer, mask_BR, whole_mask_BR)

    policy_loss, numbers = parts.policy_loss_fn(**arguments_from(parts.policy_loss_fn, fields))
    normalizer = parts.policy_loss_fn.normalizer
    loss = policy_loss * weight(normalizer)
    metrics = _scaled(numbers, weight("rows" if normalizer == "sum" else normalizer))
    share = weight(normalizer_of_mode(parts.loss_agg_mode))
    if "entropy" in fields:
        entropy, numbers = parts.entropy_loss_fn(
            fields["entropy"], mask_BR, loss_agg_mode=parts.loss_agg_mode
        )
        loss = loss - entropy * share
        metrics |= _scaled(numbers, share)
    if parts.kl_loss_fn is not None:
        kl, numbers = parts.kl_loss_fn.calculate_kl_loss(
            fields["logprob"], fields["ref_logprob"], mask_BR, parts.loss_agg_mode
        )
        loss = loss + kl * share
        metrics |= _scaled(numbers, share)
    metrics |= _distance_from_rollout(fields, share=weight("tokens"))
    return WeightedLoss(loss=loss, metrics=metrics | {"loss": loss.detach().item()})


def _scaled(metrics: Metrics, share: float) -> Metrics:
    return {name: value * share for name, value in metrics.items()}


def _distance_from_rollout(fields: Fields, *, share: float) -> Metrics:
    if "sampled_logprob" not in fields:
        return {}
    mask_BR = fields["action_mask"]
    difference_BR = masked(fields["logprob"].detach() - fields["sampled_logprob"], mask_BR).abs()
    mean = difference_BR.sum() / mask_BR.sum().clamp(min=1)
    return {"rollout_logprob_diff": mean.item() * share}
