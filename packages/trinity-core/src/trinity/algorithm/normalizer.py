"""Say what a loss divides by, so that it can be cut into micro-batches without error."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import EPSILON

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

__all__ = ["Normalized", "Normalizer", "metric_weights", "normalizer_of_mode", "weight_of_part"]

Normalizer = Literal["tokens", "rows", "pairs", "sum"]


class Normalized:
    """Base of the losses: each returns a mean over what it is given, and says over what."""

    #: of a metric that is a mean over something else than the loss: what it is over
    metric_normalizers: ClassVar[Mapping[str, Normalizer]] = {}

    @property
    def normalizer(self) -> Normalizer:
        """Return what the mean is over: that of ``self.loss_agg_mode``, tokens if there is none.

        A subclass may name its own: ``normalizer = "rows"``.
        """
        return normalizer_of_mode(getattr(self, "loss_agg_mode", "token-mean"))


def normalizer_of_mode(loss_agg_mode: str) -> Normalizer:
    """Return what a mean of this aggregation mode is over."""
    return "tokens" if loss_agg_mode == "token-mean" else "rows"


def weight_of_part(normalizer: Normalizer, part_mask: Tensor, whole_mask: Tensor) -> float:
    """Return what a micro-batch's mean is multiplied by, so that the parts sum to the whole's mean.

    Args:
        normalizer: what the loss declares.
        part_mask: ``[B, R]`` action mask of the micro-batch.
        whole_mask: ``[B, R]`` action mask of the batch.
    """
    if normalizer == "sum":
        return 1.0
    if normalizer == "tokens":
        return (int(part_mask.sum()) + EPSILON) / (int(whole_mask.sum()) + EPSILON)
    check_choice("normalizer", normalizer, Normalizer)
    return len(part_mask) / max(len(whole_mask), 1)  # pairs are two rows each, in both


def metric_weights(
    loss_fn: Normalized, names: Iterable[str], part_mask: Tensor, whole_mask: Tensor
) -> dict[str, float]:
    """Return what each metric of a micro-batch is multiplied by before the parts are summed.

    Args:
        loss_fn: whose metrics they are; one that it says nothing of is a mean over what the loss
            is over, or over rows where the loss is a sum.
        names: of the metrics.
        part_mask: ``[B, R]`` action mask of the micro-batch.
        whole_mask: ``[B, R]`` action mask of the batch.
    """
    own: Normalizer = "rows" if loss_fn.normalizer == "sum" else loss_fn.normalizer
    over = {name: loss_fn.metric_normalizers.get(name, own) for name in names}
    # Each of these waits for the GPU that the mask is on.
    weights = {one: weight_of_part(one, part_mask, whole_mask) for one in set(over.values())}
    return {name: weights[one] for name, one in over.items()}
