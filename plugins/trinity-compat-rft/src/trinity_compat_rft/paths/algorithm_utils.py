"""``trinity.algorithm.utils``: the core's masked sums and means, by the published parameter names.

B rows of a batch   R response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.algorithm import ops

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

__all__ = [
    "aggregate_loss",
    "masked_mean",
    "masked_sum",
    "masked_var",
    "masked_whiten",
    "prefix_metrics",
]

masked_mean = ops.masked_mean


def masked_sum(values: Tensor, mask: Tensor, axis: int | None = None) -> Tensor:
    """Return the sum of the values where the mask is True, over all or along one axis."""
    return ops.masked_sum(values, mask, axis)


def masked_var(
    values: Tensor,
    mask: Tensor,
    unbiased: bool = True,  # noqa: FBT001, FBT002 -- published
) -> Tensor:
    """Return the variance of the values where the mask is True.

    Raises:
        ValueError: the unbiased variance of fewer than two values is asked for.
    """
    return ops.masked_var(values, mask, unbiased=unbiased)


def masked_whiten(
    values: Tensor,
    mask: Tensor,
    shift_mean: bool = True,  # noqa: FBT001, FBT002 -- published
) -> Tensor:
    """Return ``(x - mean) / sqrt(var + 1e-8)``; without the shift, the mean is added back."""
    return ops.masked_whiten(values, mask, shift_mean=shift_mean)


def aggregate_loss(
    values: Tensor,
    mask: Tensor,
    loss_agg_mode: ops.LossAggMode = "token-mean",
    normalizer: float | None = None,
) -> Tensor:
    """Return one number for a loss per token, ``[B, R]``.

    ``seq-mean-token-sum-norm`` is the published one: the sum over all tokens, not over the rows,
    by the length.

    Args:
        values: the loss of each token.
        mask: which tokens count.
        loss_agg_mode: how tokens become one number, as in ``trinity.algorithm.ops``.
        normalizer: the length of ``seq-mean-token-sum-norm``; None: R.

    Raises:
        ValueError: no such mode, or the shapes differ.
    """
    if loss_agg_mode == "seq-mean-token-sum-norm":
        length = mask.shape[-1] if normalizer is None else normalizer
        return ops.masked_sum(values, mask) / (length + ops.EPSILON)
    return ops.aggregate_loss(values, mask, loss_agg_mode)


def prefix_metrics(
    src_metrics: Mapping[str, Any], prefix: str, dst_metrics: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return ``dst_metrics`` with the metrics under ``prefix/`` added; None: a new dict."""
    merged = {} if dst_metrics is None else dst_metrics
    merged |= {f"{prefix}/{name}": value for name, value in src_metrics.items()}
    return merged
