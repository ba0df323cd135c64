"""What is no page: numbers for the script, charts as SVG, tables as CSV."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.responses import Response

from trinity_studio.view.charts import svg_file
from trinity_studio.view.plots import Plot, plot_of
from trinity_studio.view.shown import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.datastructures import QueryParams

    from trinity_studio.view.run import Run

__all__ = ["csv_response", "series"]

_MOST_NAMES = 12
_TYPES = {"json": "application/json", "svg": "image/svg+xml", "csv": "text/csv; charset=utf-8"}


def series(runs: Mapping[int, Run], query: QueryParams, *, kind: str) -> Response:
    """Return metrics of runs as ``json``, ``svg`` or ``csv``."""
    plot = _plot(runs, query)
    if kind == "json":
        return Response(json.dumps(plot.as_json()), media_type=_TYPES[kind])
    text = svg_file(plot.name, plot.as_lines()) if kind == "svg" else plot.as_csv()
    name = re.sub(r"[^\w.@-]+", "-", plot.name, flags=re.ASCII)[:80] or "chart"
    return _file(text, name=f"{name}.{kind}", kind=kind)


def csv_response(text: str, *, name: str) -> Response:
    """Return a table that a browser keeps as a file."""
    return _file(text, name=name, kind="csv")


def _file(text: str, *, name: str, kind: str) -> Response:
    return Response(
        text.encode("utf-8", "replace"),
        media_type=_TYPES[kind],
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def _plot(runs: Mapping[int, Run], query: QueryParams) -> Plot:
    """Return one metric of several runs, or several metrics, a line each."""
    names = query.getlist("name")[:_MOST_NAMES]
    by_seed = query.get("by_seed") == "1"
    if len(names) == 1:
        return plot_of(names[0], runs, by_seed=by_seed)
    lines = []
    for number, name in enumerate(names):
        for line in plot_of(name, runs, by_seed=by_seed).lines:
            is_one = len(runs) == 1
            label = plain(name) if is_one else f"{line.label} {plain(name)}"
            lines.append(replace(line, label=label, colour=number if is_one else line.colour))
    return Plot(name=plain(" ".join(names)), lines=[line for line in lines if line.points])
