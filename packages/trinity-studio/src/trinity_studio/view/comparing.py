"""What the pages of several runs hold: their metrics together, their settings, their samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from trinity_studio.view.charts import chart
from trinity_studio.view.differences import (
    NO_VALUE,
    differing,
    grouped,
    settings_of,
    without_seeds,
    written,
)
from trinity_studio.view.evaluations import same_tasks
from trinity_studio.view.metric_names import CHOSEN, metric_groups
from trinity_studio.view.plots import deviation, plot_of
from trinity_studio.view.runs_table import row_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity_studio.view.run import Run

    Values = dict[str, Any]  # Any: what a template draws

__all__ = ["compare", "compare_metrics", "compare_samples"]

_MOST_CHARTS = 8


def compare(runs: Mapping[int, Run], query: Mapping[str, str]) -> Values:
    """Return the charts that people look at first, the groups, and the settings that differ."""
    by_seed = query.get("each") != "1"
    names = list(dict.fromkeys(name for run in runs.values() for name in run.metrics.names("")))
    held_out = list(dict.fromkeys(name for run in runs.values() for name in run.held_out))
    first = [name for start in CHOSEN for name in names if name.startswith(start)]
    charts = []
    for name in list(dict.fromkeys([*held_out, *first]))[:_MOST_CHARTS]:
        lines = plot_of(name, runs, by_seed=by_seed).as_lines()
        charts.append(chart(name, lines, source=urlencode({"name": name})))
    settings = {place: settings_of(run) for place, run in runs.items()}
    keys, groups = differing(settings.values()), _groups(runs)
    if by_seed:
        keys = without_seeds(keys)
    by_hand = written(keys, runs.values())
    return {
        "charts": [one for one in charts if one],
        "by_seed": by_seed,
        "groups": groups,
        "columns": _columns(groups, runs, settings, by_seed=by_seed),
        "keys": by_hand or keys,
        "derived": [key for key in keys if key not in by_hand] if by_hand else [],
        "no_value": NO_VALUE,
    }


def compare_metrics(runs: Mapping[int, Run], query: Mapping[str, str]) -> Values:
    """Return all metrics of the runs by name."""
    return metric_groups(runs, query=query) | {"by_seed": query.get("each") != "1"}


def compare_samples(runs: Mapping[int, Run], query: Mapping[str, str]) -> Values:
    """Return the same tasks side by side."""
    return same_tasks(runs, query=query)


def _columns(
    groups: Sequence[Values],
    runs: Mapping[int, Run],
    settings: Mapping[int, Mapping[str, str]],
    *,
    by_seed: bool,
) -> list[Values]:
    """Return a column of settings for each group, or for each run: its title, run and settings."""
    if not by_seed:
        return [
            {"title": run.name, "place": place, "settings": settings[place]}
            for place, run in runs.items()
        ]
    firsts = [next(iter(one["rows"])) for one in groups]
    return [
        {"title": one["label"], "place": place, "settings": settings[place]}
        for one, place in zip(groups, firsts, strict=True)
    ]


def _groups(runs: Mapping[int, Run]) -> list[Values]:
    """Return the groups with the mean and the spread of what they reached."""
    groups = []
    for label, group in grouped(runs):
        rows = {place: row_of(run) for place, run in group.items()}
        groups.append(
            {
                "label": label,
                "rows": rows,
                **{name: _spread([row[name] for row in rows.values()]) for name in _REACHED},
            }
        )
    return groups


_REACHED = ("evaluation", "best", "reward")


def _spread(values: list[float | None]) -> tuple[float, float] | None:
    """Return mean and standard deviation; None: no run has the value."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    return mean, deviation(known, mean=mean)
