"""Add up the losses of a micro-batch so that its share of the batch's gradient comes out.

B rows of a batch or micro-batch   R response
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.algorithm.fields import arguments_from, with_whole
from trinity.algorithm.normalizer import metric_weights, normalizer_of_mode, weight_of_part
from trinity.algorithm.ops import masked
from trinity.algorithm.rollout_correction import with_weighted_gradient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from trinity.common.batch import Fields
    from trinity.common.metrics import Metrics
    from trinity.trainer.parts import AlgorithmParts


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightedLoss:
    """A micro-batch's share; the shares of a batch sum to the batch's loss and metrics."""

    loss: Tensor
    metrics: Metrics


def weighted_loss(
    parts: AlgorithmParts, fields: Fields, *, whole: Mapping[str, Any]
) -> WeightedLoss:
    """Return the share of ``policy loss - entropy + KL``.

    Args:
        parts: the losses.
        fields: of the micro-batch, each ``[B, R]``: ``logprob``, ``action_mask``, what the losses
            name, and ``entropy`` where it is wanted.
        whole: fields of the batch (Any: tensors), whose ``action_mask`` the normalisers count.
    """
    policy_loss_fn, entropy_loss_fn = parts.policy_loss_fn, parts.entropy_loss_fn
    known = with_whole(policy_loss_fn, fields, whole)
    if "rollout_weight" in fields:
        known["logprob"] = with_weighted_gradient(fields["logprob"], fields["rollout_weight"])
    policy_loss, numbers = policy_loss_fn(**arguments_from(policy_loss_fn, known))
    masks = fields["action_mask"], whole["action_mask"]
    loss = policy_loss * weight_of_part(policy_loss_fn.normalizer, *masks)
    weights = metric_weights(policy_loss_fn, numbers, *masks)
    metrics = {name: value * weights[name] for name, value in numbers.items()}
    own, whole_own_BR = _own_rows(fields, whole)
    mode = parts.loss_agg_mode
    share = weight_of_part(normalizer_of_mode(mode), own["action_mask"], whole_own_BR)
    if "entropy" in own and len(own["entropy"]):
        known = {**own, "loss_agg_mode": mode}
        entropy, numbers = entropy_loss_fn(**arguments_from(entropy_loss_fn, known))
        loss = loss - entropy * share
        metrics |= _scaled(numbers, share)
    if parts.kl_loss_fn is not None and len(own["logprob"]):
        kl, numbers = parts.kl_loss_fn.calculate_kl_loss(
            own["logprob"], own["ref_logprob"], own["action_mask"], mode, own.get("old_logprob")
        )
        loss = loss + kl * share
        metrics |= _scaled(numbers, share)
    metrics |= _distance_from_rollout(own, whole_own_BR)
    return WeightedLoss(loss=loss, metrics=metrics | {"loss": loss.detach().item()})


def _own_rows(
    fields: Mapping[str, Any], whole: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Tensor]:
    """Return the fields of the rows that are no expert's, and the mask of such rows of the batch.

    How undecided the policy is about an expert's tokens, and how far from the reference, is no
    matter of its own exploring.
    """
    if "expert_mask" not in fields:
        return fields, whole["action_mask"]
    is_own_B, is_own_of_whole_B = (~rows["expert_mask"].bool() for rows in (fields, whole))
    own = {name: value[is_own_B] for name, value in fields.items()}
    return own, whole["action_mask"][is_own_of_whole_B]


def _scaled(metrics: Metrics, share: float) -> Metrics:
    return {name: value * share for name, value in metrics.items()}


def _distance_from_rollout(own: Mapping[str, Any], whole_own_BR: Tensor) -> Metrics:
    """Return the mean distance from what the engine says; an expert's rows are of no engine."""
    if "sampled_logprob" not in own or not len(own["sampled_logprob"]):
        return {}
    mask_BR = own["action_mask"]
    difference_BR = masked(own["logprob"].detach() - own["sampled_logprob"], mask_BR).abs()
    return {"rollout_logprob_diff": difference_BR.sum().item() / max(int(whole_own_BR.sum()), 1)}
