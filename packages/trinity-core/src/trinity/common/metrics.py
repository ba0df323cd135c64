"""Names and merges of metrics.

A component returns plain floats under its own names; the room that runs it adds the prefix
(``rollout/``, ``actor/``, ``eval/<taskset>/``). A name may end in ``:sum``, ``:max``, ``:min``,
``:last`` or ``:mean``, which chooses how values of one step are merged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Number
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Metrics", "aggregate", "deviation", "mean", "merge", "numbers_in", "with_prefix"]

Metrics = dict[str, float]


def _or_nan(statistic: Callable[[Iterable[float]], float]) -> Callable[[Iterable[float]], float]:
    """Return the statistic as one that is NaN where there is none: of both infinities, say."""

    def of(values: Iterable[float]) -> float:
        try:
            return statistic(values)
        except (ArithmeticError, AttributeError, ValueError):  # pstdev meets NaN by the second
            return math.nan

    return of


mean, deviation, _sum = _or_nan(fmean), _or_nan(pstdev), _or_nan(math.fsum)

_SUFFIXES: dict[str, Callable[[list[float]], float]] = {
    "sum": _sum,
    "max": max,
    "min": min,
    "last": lambda values: values[-1],
    "mean": mean,
}


def with_prefix(prefix: str, metrics: Mapping[str, float]) -> Metrics:
    """Return the metrics under ``prefix/``.

    >>> with_prefix("actor", {"loss": 1.0})
    {'actor/loss': 1.0}
    """
    return {f"{prefix}/{name}": value for name, value in metrics.items()}


def numbers_in(metrics: Mapping[Any, object]) -> tuple[Metrics, dict[str, object]]:
    """Return what is a number in the metrics, as plain floats, and what is none, both by name.

    Numbers of any library count, tensors and arrays of one number and truth values too. A mapping
    within gives names with a slash. NaN and infinity are numbers.

    Args:
        metrics: whatever a component gave (Any: its keys are the component's own).

    >>> numbers_in({"loss": 1, "is_capped": True, "grad": {"norm": 0.5, "where": "head"}})
    ({'loss': 1.0, 'is_capped': 1.0, 'grad/norm': 0.5}, {'grad/where': 'head'})
    """
    numbers: Metrics = {}
    others: dict[str, object] = {}
    for name, value in metrics.items():
        if type(value) is float:  # nearly all are
            numbers[str(name)] = value
        elif isinstance(value, Mapping):
            within, without = numbers_in(value)
            numbers |= with_prefix(str(name), within)
            others |= {f"{name}/{key}": other for key, other in without.items()}
        elif (number := _number(value)) is not None:
            numbers[str(name)] = number
        else:
            others[str(name)] = value
    return numbers, others


def _number(value: Any) -> float | None:  # Any: of a component's own code
    """Return the number that a value is, None for what is none: a text never is."""
    if isinstance(value, (str, bytes)) or not (isinstance(value, Number) or hasattr(value, "item")):
        return None
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # several numbers, or too large
        return None


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
        if not name or suffix not in _SUFFIXES:
            name, suffix = key, ""
        for statistic in [suffix] if suffix else ["mean", "max", "min"]:
            merged[f"{prefix}/{name}/{statistic}"] = _SUFFIXES[statistic](values)
    return merged


def merge(rows: Iterable[Mapping[str, float]]) -> Metrics:
    """Return each metric's mean over the rows that have it."""
    return {name: mean(values) for name, values in _collect(rows).items()}


def _collect(rows: Iterable[Mapping[str, object]]) -> dict[str, list[float]]:
    collected: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, (int, float)):
                collected.setdefault(name, []).append(float(value))
    return collected
