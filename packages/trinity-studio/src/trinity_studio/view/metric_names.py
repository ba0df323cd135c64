"""All metrics of runs by name: grouped by prefix, those that people look at first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity_studio.view.run import Run

__all__ = ["CHOSEN", "metric_groups"]

#: those that come first, by the beginning of their names
CHOSEN = (
    "rollout/reward/mean", "actor/loss", "actor/ppo_kl", "actor/kl_loss",
    "actor/entropy", "actor/grad_norm", "rollout/response_length/mean", "rollout/failed_runs",
)  # fmt: skip
_NO_METRICS = {"step", "role"}


def metric_groups(runs: Mapping[int, Run], *, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the metrics that any run has, with their last values, by prefix.

    Args:
        runs: by their numbers; numbers are told of the first that has the metric.
        query: ``q``, words that all have to stand in a name.
    """
    names = list(dict.fromkeys(name for run in runs.values() for name in run.metrics.names("")))
    names = sorted(name for name in names if name not in _NO_METRICS)
    words = query.get("q", "").lower().split()
    wanted = [name for name in names if all(word in name.lower() for word in words)]
    groups: dict[str, list[dict[str, Any]]] = {}
    first = _chosen(wanted)
    for name in [*first, *(name for name in wanted if name not in first)]:
        row = _row(name, runs)
        if row is not None:
            groups.setdefault("chosen" if name in first else _prefix(name), []).append(row)
    return {
        "groups": groups,
        "num_metrics": sum(map(len, groups.values())),
        "num_all": len(names),
        "q": query.get("q", ""),
    }


def _chosen(names: Sequence[str]) -> list[str]:
    starts = ("eval/", "bench/")
    evaluated = [name for name in names if name.startswith(starts) and "/reward/mean@" in name]
    others = [name for start in CHOSEN for name in names if name.startswith(start)]
    return list(dict.fromkeys([*evaluated, *others]))


def _prefix(name: str) -> str:
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] in {"eval", "bench"} and len(parts) > 2 else parts[0]


def _row(name: str, runs: Mapping[int, Run]) -> dict[str, Any] | None:
    """Return the numbers of a metric; None: no run has a number of that name."""
    for run in runs.values():
        values = [value for _, value in run.metrics.series(name) if math.isfinite(value)]
        if values:
            return {
                "name": name,
                "run": run.name,
                "first": values[0],
                "last": values[-1],
                "low": min(values),
                "high": max(values),
                "count": len(values),
            }
    return None
