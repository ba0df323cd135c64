"""Add up a loss on the policy's own rows and one on an expert's, each with its own normaliser.

B rows of a micro-batch   R response
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.algorithm.fields import arguments_from
from trinity.algorithm.ops import masked_sum, metric_weights, weight_of_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from trinity.algorithm.policy_loss_fn.base import PolicyLossFn

__all__ = ["PublishedCounts", "check_share", "mixed_loss"]

Fields = dict[str, Any]  # Any: tensors, each [B, ...]


@dataclass(frozen=True, kw_only=True)
class PublishedCounts:
    """The arguments by which Trinity-RFT's mixed losses count rows for themselves.

    A micro-batch's mean over its n rows of a kind is weighed by ``n k / (rows // ngpus)``, with k
    the number of micro-batches of a mini-batch. Divisions are integer divisions, as published.
    """

    use_dynamic_bsz: bool = False
    ppo_mini_batch_size: int = 1
    ppo_micro_batch_size_per_gpu: int = 1
    ngpus_trainer: int = 1
    train_batch_size_usual: int = 1
    train_batch_size_expert: int = 1

    def weight(self, kind: str, *, num_rows: int, num_rows_of_kind: int) -> float:
        """Return what the mean over the rows of a kind, usual or expert, is multiplied by."""
        if self.use_dynamic_bsz:
            num_parts = (self.ppo_mini_batch_size // self.ngpus_trainer) / num_rows
        else:
            num_parts = float(self.ppo_mini_batch_size // self.ppo_micro_batch_size_per_gpu)
        is_expert = kind == "expert"
        rows = self.train_batch_size_expert if is_expert else self.train_batch_size_usual
        return num_rows_of_kind * num_parts / (rows // self.ngpus_trainer)


def check_share(**shares: float) -> None:
    """Refuse a share of the expert's that is not from 0 to 1.

    >>> check_share(mu=1.5)
    Traceback (most recent call last):
    ...
    ValueError: mu is 1.5; it must be from 0 to 1
    """
    for name, share in shares.items():
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"{name} is {share}; it must be from 0 to 1")


def mixed_loss(
    losses: Mapping[str, PolicyLossFn],
    fields: Fields,
    *,
    mu: float,
    counts: PublishedCounts,
    reports_empty_parts: bool = False,
) -> tuple[Tensor, dict[str, float]]:
    """Return ``(1 - mu) usual + mu expert`` and the metrics of both, each weighed like its loss.

    With ``whole_action_mask`` and ``whole_expert_mask`` among the fields, each part is its share of
    the whole batch's mean, so that micro-batches sum to the whole; without them, the published
    counts say what a micro-batch weighs.

    Args:
        losses: the losses called ``usual`` and ``expert``.
        fields: of the micro-batch, ``expert_mask`` ``[B]`` among them.
        mu: the expert's share, from 0 to 1.
        counts: the published arguments.
        reports_empty_parts: report the metrics of a part without rows, as 0.
    """
    is_expert_B = fields["expert_mask"].bool()
    loss = masked_sum(fields["logprob"], fields["action_mask"]) * 0.0
    metrics: dict[str, float] = {}
    scale = _scale_of_metrics(fields)
    for kind, rows_B, share in (("usual", ~is_expert_B, 1.0 - mu), ("expert", is_expert_B, mu)):
        has_rows = bool(rows_B.any())
        if not has_rows and not reports_empty_parts:
            continue
        part = {name: value[rows_B] for name, value in fields.items() if _is_of_rows(name, value)}
        part = part if has_rows else _nothing(fields)
        weight = _weight(kind, rows_B, losses[kind], fields, counts) if has_rows else 0.0
        value, numbers = losses[kind](**arguments_from(losses[kind], part))
        weights = dict.fromkeys(numbers, weight)
        if has_rows:
            loss = loss + share * weight * value
            if fields.get("whole_expert_mask") is not None:
                masks = _masks(kind, rows_B, fields)
                weights = metric_weights(losses[kind], numbers, *masks)
        metrics |= {f"{kind}/{name}": n * weights[name] * scale for name, n in numbers.items()}
    return loss, metrics | {"loss": loss.detach().item() * scale}


def _weight(
    kind: str, rows_B: Tensor, loss_fn: PolicyLossFn, fields: Fields, counts: PublishedCounts
) -> float:
    if fields.get("whole_expert_mask") is None:
        num_of_kind = int(rows_B.sum())
        return counts.weight(kind, num_rows=len(rows_B), num_rows_of_kind=num_of_kind)
    return weight_of_part(loss_fn.normalizer, *_masks(kind, rows_B, fields))


def _masks(kind: str, rows_B: Tensor, fields: Fields) -> tuple[Tensor, Tensor]:
    """Return the action mask of a kind's rows here, and that of its rows in the whole batch."""
    is_expert_B = fields["whole_expert_mask"].bool()
    whole_rows_B = is_expert_B if kind == "expert" else ~is_expert_B
    return fields["action_mask"][rows_B], fields["whole_action_mask"][whole_rows_B]


def _scale_of_metrics(fields: Fields) -> float:
    """Return what makes a mean over rows of what is a sum already."""
    if fields.get("whole_expert_mask") is None:
        return 1.0
    return len(fields["whole_expert_mask"]) / len(fields["expert_mask"])


def _is_of_rows(name: str, value: Any) -> bool:
    return value is not None and not name.startswith("whole_")


def _nothing(fields: Fields) -> Fields:
    """Return one row without a token: every metric of it is 0."""
    return {
        name: value.detach().new_zeros((1, *value.shape[1:]))
        for name, value in fields.items()
        if _is_of_rows(name, value)
    }
