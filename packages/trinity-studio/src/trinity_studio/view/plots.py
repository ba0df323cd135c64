"""A metric of one or several runs, as the charts of the script, as SVG and as a table draw it."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity_studio.view.charts import Line
from trinity_studio.view.differences import grouped
from trinity_studio.view.shown import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity_studio.view.metrics_file import Series
    from trinity_studio.view.run import Run

__all__ = ["Plot", "PlotLine", "deviation", "plain_cell", "plot_of"]

MAX_POINTS = 2000  # of a line; more are means of neighbours
_MOST_RUNS = 50


@dataclass(frozen=True, kw_only=True)
class PlotLine:
    """One line of a plot.

    Attributes:
        label: for the legend.
        points: step and value.
        colour: which of the style sheet's.
        low: mean less the standard deviation, where it is a group of several runs.
        high: mean plus the standard deviation.
        is_single: one run of a group, behind the mean.
    """

    label: str
    points: Series
    colour: int
    low: Series | None = None
    high: Series | None = None
    is_single: bool = False


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Lines of one metric."""

    name: str
    lines: list[PlotLine]

    def as_json(self) -> dict[str, Any]:  # Any: json
        """Return steps that all lines share, and the values of each; null: it has none there."""
        steps = sorted({step for line in self.lines for step, _ in line.points})
        return {
            "name": self.name,
            "steps": steps,
            "lines": [
                {
                    "label": line.label,
                    "colour": line.colour,
                    "single": line.is_single,
                    "values": _aligned(line.points, steps),
                    "low": None if line.low is None else _aligned(line.low, steps),
                    "high": None if line.high is None else _aligned(line.high, steps),
                }
                for line in self.lines
            ],
        }

    def as_csv(self) -> str:
        """Return a row for each step; the first names the lines."""
        steps = sorted({step for line in self.lines for step, _ in line.points})
        columns = [dict(line.points) for line in self.lines]
        file = io.StringIO()
        rows = csv.writer(file)
        rows.writerow(["step", *(plain_cell(line.label) for line in self.lines)])
        rows.writerows([step, *(column.get(step, "") for column in columns)] for step in steps)
        return file.getvalue()

    def as_lines(self) -> list[Line]:
        """Return them as charts without a script draw them: of groups the means."""
        return [
            Line(
                label=line.label,
                points=line.points,
                colour=line.colour,
                low=line.low,
                high=line.high,
            )
            for line in self.lines
            if not line.is_single
        ]


def plain_cell(text: str) -> str:
    """Return a text of others for a table that no program takes for a formula."""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text


def plot_of(name: str, runs: Mapping[int, Run], *, by_seed: bool = False) -> Plot:
    """Return a metric of runs, a line each, or a mean and the single lines for those of a group.

    Args:
        name: of the metric.
        runs: by their numbers; more than 50 are left out.
        by_seed: whether runs that differ in their seeds alone are one line.
    """
    chosen = dict(list(runs.items())[:_MOST_RUNS])
    if not by_seed:
        return Plot(
            name=plain(name),
            lines=[_line(name, colour, run) for colour, run in enumerate(chosen.values())],
        )
    lines: list[PlotLine] = []
    for colour, (label, group) in enumerate(grouped(chosen)):
        single = [_line(name, colour, run) for run in group.values()]
        single = [line for line in single if line.points]
        if len(single) > 1:
            lines += [
                PlotLine(label=line.label, points=line.points, colour=colour, is_single=True)
                for line in single
            ]
        if single:
            lines.append(_mean(single, label=plain(label), colour=colour))
    return Plot(name=plain(name), lines=lines)


def _line(name: str, colour: int, run: Run) -> PlotLine:
    points = [point for point in run.metrics.series(name) if math.isfinite(point[1])]
    return PlotLine(label=plain(run.name), points=_thinned(points), colour=colour)


def _mean(lines: list[PlotLine], *, label: str, colour: int) -> PlotLine:
    """Return the mean and the standard deviation at the steps that all runs have."""
    columns = [dict(line.points) for line in lines]
    steps = sorted(set.intersection(*map(set, columns))) or [p[0] for p in lines[0].points]
    values = {step: [column[step] for column in columns if step in column] for step in steps}
    mean = [(step, sum(own) / len(own)) for step, own in values.items()]
    if len(lines) == 1:
        return PlotLine(label=label, points=mean, colour=colour)
    spread = {
        step: deviation(own, mean=value)
        for (step, value), own in zip(mean, values.values(), strict=True)
    }
    return PlotLine(
        label=label,
        points=mean,
        colour=colour,
        low=[(step, value - spread[step]) for step, value in mean],
        high=[(step, value + spread[step]) for step, value in mean],
    )


def deviation(values: Sequence[float], *, mean: float) -> float:
    """Return the standard deviation of a sample; 0 where it has one value.

    >>> deviation([1.0, 3.0], mean=2.0)
    1.4142135623730951
    """
    squares = sum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / max(1, len(values) - 1))


def _aligned(points: Series, steps: list[float]) -> list[float | None]:
    known = dict(points)
    return [known.get(step) for step in steps]


def _thinned(points: Series) -> Series:
    if len(points) <= MAX_POINTS:
        return points
    size = math.ceil(len(points) / MAX_POINTS)
    parts = [points[place : place + size] for place in range(0, len(points), size)]
    return [(part[-1][0], sum(value for _, value in part) / len(part)) for part in parts]
