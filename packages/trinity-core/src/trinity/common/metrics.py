"""Names and merges of metrics.

A component returns plain floats under its own names; the room that runs it adds the prefix
(``rollout/``, ``actor/``, ``eval/<taskset>/``). A name may end in ``:sum``, ``:max``, ``:min``,
``:last`` or ``:mean``, which chooses how values of one step are merged.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Metrics", "aggregate", "merge", "with_prefix"]

Metrics = dict[str, float]

_SUFFIXES: dict[str, Callable[[list[float]], float]] = {
    "sum": math.fsum,
    "max": max,
    "min": min,
    "last": lambda values: values[-1],
    "mean": fmean,
}


def with_prefix(prefix: str, metrics: Mapping[str, float]) -> Metrics:
    """Return the metrics under ``prefix/``.

    >>> with_prefix("actor", {"loss": 1.0})
    {'actor/loss': 1.0}
    """
    return {f"{prefix}/{name}": value for name, value in metrics.items()}


def aggregate(rows: Iterable[Mapping[str, object]], *, prefix: str) -> Metrics:
    """Return mean, max and min of each number over the rows, or the one statistic a suffix names.

    >>> aggregate([{"reward": 1.0}, {"reward": 0.0}], prefix="rollout")
    {'rollout/reward/mean': 0.5, 'rollout/reward/max': 1.0, 'rollout/reward/min': 0.0}
    >>> aggregate([{"calls:sum": 2}, {"calls:sum": 3}], prefix="rollout")
    {'rollout/calls/sum': 5.0}
    """
    merged: Metrics = {}
    for key, values in _collect(rows).items():
        name, _, suffix = key.rpartition(":")
        if name and suffix in _SUFFIXES:
            merged[f"{prefix}/{name}/{suffix}"] = float(_SUFFIXES[suffix](values))
            continue
        for statistic, value in (
            ("mean", fmean(values)),
            ("max", max(values)),
            ("min", min(values)),
        ):
            merged[f"{prefix}/{key}/{statistic}"] = value
    return merged


def merge(rows: Iterable[Mapping[str, float]]) -> Metrics:
    """Return each metric's mean over the rows that have it."""
    return {name: fmean(values) for name, values in _collect(rows).items()}


def _collect(rows: Iterable[Mapping[str, object]]) -> dict[str, list[float]]:
    collected: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, (int, float)):
                collected.setdefault(name, []).append(float(value))
    return collected
