"""Masked sums, means and loss aggregation: pure functions on tensors.

B rows of a batch   R response

A masked position never reaches a result: values are selected before anything is multiplied, so that
even 1e30 or NaN in the padding changes nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

from trinity.algorithm.args import check_choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

__all__ = [
    "EPSILON",
    "MAX_LOG_RATIO",
    "LossAggMode",
    "Normalized",
    "Normalizer",
    "aggregate_loss",
    "log_ratio",
    "masked",
    "masked_mean",
    "masked_sum",
    "masked_var",
    "masked_whiten",
    "mean_and_std",
    "metric_weights",
    "normalizer_of_mode",
    "numbers_of",
    "weight_of_part",
]

EPSILON = 1e-8  # keeps a mean over no token 0 instead of NaN
MAX_LOG_RATIO = 20.0  # a single wrong log-probability would overflow exp() and spoil the step

LossAggMode = Literal[
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]


def masked(values: Tensor, mask: Tensor) -> Tensor:
    """Return the values with 0 where the mask is False; no gradient flows there.

    Raises:
        ValueError: the shapes differ.
    """
    if values.shape != mask.shape:
        raise ValueError(
            f"values and mask must have one shape: values {tuple(values.shape)}, "
            f"mask {tuple(mask.shape)}"
        )
    return values.masked_fill(~mask.bool(), 0.0)


def log_ratio(
    logprob_BR: Tensor, other_BR: Tensor, mask_BR: Tensor, *, limit: float = MAX_LOG_RATIO
) -> Tensor:
    """Return ``logprob - other`` within ``[-limit, limit]``, 0 where masked, ready for ``exp``.

    Args:
        logprob_BR: natural log-probability of each token.
        other_BR: that of another policy, or of the same one before.
        mask_BR: which tokens count.
        limit: beyond it the gradient is 0, not infinite; e^20 is 5e8.
    """
    return (masked(logprob_BR, mask_BR) - masked(other_BR, mask_BR)).clamp(-limit, limit)


def masked_sum(values: Tensor, mask: Tensor, axis: int | None = None) -> Tensor:
    """Return the sum of the values where the mask is True, over all or along one axis."""
    chosen = masked(values, mask)
    return chosen.sum() if axis is None else chosen.sum(dim=axis)


def masked_mean(values: Tensor, mask: Tensor, axis: int | None = None) -> Tensor:
    """Return ``sum(m x) / (sum(m) + 1e-8)``, over all or along one axis; 0 if all is masked."""
    count = mask.bool().sum() if axis is None else mask.bool().sum(dim=axis)
    return masked_sum(values, mask, axis) / (count.to(values.dtype) + EPSILON)


def masked_var(values: Tensor, mask: Tensor, *, unbiased: bool = True) -> Tensor:
    """Return the variance of the values where the mask is True.

    Raises:
        ValueError: the unbiased variance of fewer than two values is asked for.
    """
    squares = (values - masked_mean(values, mask)).square()
    variance = masked_mean(squares, mask)
    if not unbiased:
        return variance
    count = int(mask.bool().sum())
    if count < 2:
        raise ValueError(f"an unbiased variance needs two unmasked values, there are {count}")
    return variance * (count / (count - 1))


def masked_whiten(values: Tensor, mask: Tensor, *, shift_mean: bool = True) -> Tensor:
    """Return ``(x - mean) / sqrt(var + 1e-8)``; without the shift, the mean is added back."""
    mean = masked_mean(values, mask)
    whitened = (values - mean) * (masked_var(values, mask) + EPSILON).rsqrt()
    return whitened if shift_mean else whitened + mean


def aggregate_loss(
    values_BR: Tensor,
    mask_BR: Tensor,
    loss_agg_mode: LossAggMode = "token-mean",
    *,
    normalizer: float | None = None,
) -> Tensor:
    """Return one number for a loss per token.

    A fully masked row counts among the B rows, as 0.

    Args:
        values_BR: the loss of each token.
        mask_BR: which tokens count.
        loss_agg_mode: ``token-mean`` (DAPO, arXiv 2503.14476), the mean over rows of the row's sum
            or mean, or of its sum by a fixed length (Dr. GRPO, arXiv 2503.20783).
        normalizer: that length; None: R.

    Raises:
        ValueError: no such mode, or the shapes differ.
    """
    if loss_agg_mode == "token-mean":
        return masked_mean(values_BR, mask_BR)
    if loss_agg_mode == "seq-mean-token-sum":
        return masked_sum(values_BR, mask_BR, -1).mean()
    if loss_agg_mode == "seq-mean-token-mean":
        return masked_mean(values_BR, mask_BR, -1).mean()
    check_choice("loss_agg_mode", loss_agg_mode, LossAggMode)
    length = values_BR.shape[-1] if normalizer is None else normalizer
    return masked_sum(values_BR, mask_BR, -1).mean() / (length + EPSILON)


def mean_and_std(values: Sequence[float], *, ddof: int = 1) -> tuple[float, float]:
    """Return the mean and the standard deviation, in float64.

    Equal values have their own value as the mean and a deviation of exactly 0, so that they differ
    from their mean by exactly 0. A single value has the deviation 0. NaN and infinity make both
    NaN.

    Args:
        values: one or more numbers.
        ddof: 1 for the sample deviation, 0 for the population's.

    >>> mean_and_std([1.0, 3.0])
    (2.0, 1.4142135623730951)
    >>> mean_and_std([1.0, 3.0], ddof=0)
    (2.0, 1.0)
    >>> mean_and_std([0.7] * 12)
    (0.7, 0.0)
    """
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan
    if max(values) == min(values):
        return values[0], 0.0
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - ddof))


def numbers_of(*scalars: Tensor) -> list[float]:
    """Return the numbers of scalars of one dtype, with one wait for the GPU that they are on."""
    import torch

    numbers: list[float] = torch.stack(scalars).tolist()
    return numbers


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
