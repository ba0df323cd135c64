"""``trinity.utils.metrics``: merge the metrics of many experiences, runs or tasks.

A name may end in ``:sum``, ``:max``, ``:min``, ``:last`` or ``:mean``; without one it is a mean.
"""

from __future__ import annotations

from enum import StrEnum
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "AggType",
    "aggregate_eval_metrics",
    "aggregate_metrics",
    "aggregate_run_level_metrics",
    "parse_metric_key",
]


class AggType(StrEnum):
    """How values of one name become one."""

    MEAN = "mean"
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    LAST = "last"


_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": fmean,
    "sum": sum,
    "max": max,
    "min": min,
    "std": pstdev,
    "last": lambda values: values[-1],
}


def parse_metric_key(key: str) -> tuple[str, AggType]:
    """Return the name without its suffix, and how it is merged.

    >>> parse_metric_key("calls:sum"), parse_metric_key("a:b")
    (('calls', <AggType.SUM: 'sum'>), ('a:b', <AggType.MEAN: 'mean'>))
    """
    name, _, suffix = key.rpartition(":")
    known = {how.value: how for how in AggType}
    return (name, known[suffix]) if name and suffix in known else (key, AggType.MEAN)


def aggregate_metrics(
    metric_dicts: Iterable[Mapping[str, float]],
    prefix: str = "",
    default_output_stats: Sequence[str] | None = None,
) -> dict[str, float]:
    """Return each number's statistics over the rows, as ``prefix/name/statistic``.

    Args:
        metric_dicts: the rows; what is no number is left out.
        prefix: stands before each name.
        default_output_stats: of a mean; None: mean, max and min.
    """
    wanted = ("mean", "max", "min") if default_output_stats is None else default_output_stats
    merged: dict[str, float] = {}
    for (name, how), values in _collected(metric_dicts).items():
        for statistic in wanted if how is AggType.MEAN else (how.value,):
            if statistic in _STATISTICS:
                merged[f"{_under(prefix)}{name}/{statistic}"] = float(
                    _STATISTICS[statistic](values)
                )
    return merged


def aggregate_eval_metrics(
    metric_dicts: Iterable[Mapping[str, float]],
    prefix: str = "",
    output_stats: Sequence[str] | None = None,
    detailed_stats: bool = False,  # noqa: FBT001, FBT002 -- published
) -> dict[str, float]:
    """Return what ``aggregate_metrics`` does, of a mean only itself, as ``prefix/name``.

    Args:
        metric_dicts: the rows.
        prefix: stands before each name.
        output_stats: of a mean, where ``detailed_stats`` is on; None: mean, max, min and std.
        detailed_stats: give those instead of the mean alone.
    """
    rows = list(metric_dicts)
    wanted = ("mean", "max", "min", "std") if output_stats is None else tuple(output_stats)
    if detailed_stats:
        return aggregate_metrics(rows, prefix, wanted)
    means = {
        f"{_under(prefix)}{name}": fmean(values)
        for (name, how), values in _collected(rows).items()
        if how is AggType.MEAN
    }
    return means | aggregate_metrics(rows, prefix, ())


def aggregate_run_level_metrics(
    metric_dicts: Iterable[Mapping[str, float]],
) -> dict[str, float]:
    """Return one row for the experiences of a run; names keep their suffixes."""
    merged = {}
    for (name, how), values in _collected(metric_dicts).items():
        key = name if how is AggType.MEAN else f"{name}:{how.value}"
        merged[key] = float(_STATISTICS[how.value](values))
    return merged


def _collected(
    rows: Iterable[Mapping[str, float]],
) -> dict[tuple[str, AggType], list[float]]:
    collected: dict[tuple[str, AggType], list[float]] = {}
    for row in rows:
        for key, value in row.items():
            if isinstance(value, (int, float)):
                collected.setdefault(parse_metric_key(key), []).append(float(value))
    return collected


def _under(prefix: str) -> str:
    return f"{prefix}/" if prefix else ""
