"""How checks compare tensors and metrics, and what they put where nobody may look."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["HUGE", "largest_difference", "odd_metric", "with_garbage"]

HUGE = 1e30  # stands at masked positions


def with_garbage(value: Tensor, mask_BR: Tensor, *, garbage: float = HUGE) -> Tensor:
    """Return a copy that holds garbage wherever the mask is False."""
    return value.masked_fill(~mask_BR, garbage)


def largest_difference(first: Tensor, second: Tensor) -> float:
    """Return the largest absolute difference, infinite where only one of two is finite.

    Two equal infinities or two NaN do not differ.
    """
    same = (first == second) | (first.isnan() & second.isnan())
    difference = torch.where(same, torch.zeros_like(first), (first - second).abs())
    largest = float(difference.max()) if difference.numel() else 0.0
    return math.inf if math.isnan(largest) else largest


def odd_metric(metrics: object) -> str:
    """Return what is wrong with metrics that are no plain finite numbers, or an empty string."""
    if not isinstance(metrics, Mapping):
        return f"the metrics are no mapping but a {type(metrics).__name__}"
    for name, value in metrics.items():
        if not isinstance(name, str):
            return f"the metric name {name!r} is no str"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"the metric {name!r} is a {type(value).__name__}, not a float"
        if not math.isfinite(value):
            return f"the metric {name!r} is {value}"
    return ""
