"""Lines over steps as SVG, drawn here: they need no script, no network and no library."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity_studio.view.metrics_file import Series

__all__ = ["Line", "chart", "smoothed", "svg_file"]

WIDTH, HEIGHT = 420, 190
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 24
MAX_POINTS = 400  # more are drawn as means of neighbours
NUM_COLOURS = 8  # of the style sheet
_COLOURS = ("#1259a8", "#c2571a", "#27803c", "#8a3ea8", "#b3263f", "#00808a", "#7a6000", "#555f6e")
_SVG_STYLE = (
    "text{font-family:system-ui,sans-serif}.grid{stroke:#e8ebf0}.tick{font-size:11px;fill:#5b6675}"
    ".end{text-anchor:end}.mid{text-anchor:middle}.band{fill:currentColor;opacity:.15}"
    ".line{fill:none;stroke:currentColor;stroke-width:2}.dot{fill:currentColor}"
    ".faint{opacity:.3;stroke-width:1}"
    + "".join(f".c{place}{{color:{colour}}}" for place, colour in enumerate(_COLOURS))
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart.

    Attributes:
        label: for the legend.
        points: step and value.
        colour: which of the style sheet's.
        is_dots: dots instead of a line.
        is_faint: in the background.
        low: below it, the lower edge of a band; None: there is no band.
        high: the upper edge.
    """

    label: str
    points: Series
    colour: int = 0
    is_dots: bool = False
    is_faint: bool = False
    low: Series | None = None
    high: Series | None = None


def chart(
    title: str,
    lines: Sequence[Line],
    *,
    note: str = "",
    still: str = "",
    floor: float = 0.0,
    source: str = "",
) -> Markup:
    """Return a chart with its legend; empty where no line has a point.

    Args:
        title: of it.
        lines: what it holds.
        note: beside the title.
        still: what more there is to say of this drawing, and not of the script's.
        floor: the least that the axis of values spans, so that noise is not drawn as movement;
            where it does, the axis says so.
        source: query of its numbers, from which the script draws it; "": it stays as it is.
    """
    drawn = [line for line in lines if any(math.isfinite(value) for _, value in line.points)]
    if not drawn:
        return Markup("")
    body = _body(drawn, floor=floor)
    named = [line for line in drawn if line.label]
    legend = Markup("").join(
        Markup('<span class="key c{}">{}</span>').format(line.colour % NUM_COLOURS, line.label)
        for line in named
    )
    last = drawn[-1].points[-1] if len(drawn) == 1 else None
    value = Markup('<span class="last">{}</span>').format(f"{last[1]:.4g}") if last else ""
    return Markup(
        '<figure class="chart" data-source="{}">'
        '<figcaption>{}{}<span class="note">{}<span class="still">{}</span></span></figcaption>'
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
        '<div class="legend">{}</div></figure>'
    ).format(source, title, value, note, still, WIDTH, HEIGHT, title, body, legend)


def svg_file(title: str, lines: Sequence[Line]) -> str:
    """Return a chart as a file that opens everywhere: with its title, legend and colours."""
    drawn = [line for line in lines if any(math.isfinite(value) for _, value in line.points)]
    named = [line for line in drawn if line.label]
    keys = Markup("").join(
        Markup(
            '<rect class="c{}" x="{}" y="{}" width="9" height="9" fill="currentColor"/>'
            '<text class="tick" x="{}" y="{}">{}</text>'
        ).format(line.colour % NUM_COLOURS, LEFT, top, LEFT + 14, top + 9, line.label)
        for top, line in ((HEIGHT + 8 + 16 * place, line) for place, line in enumerate(named))
    )
    height = HEIGHT + 36 + 16 * len(named)
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -22 {} {}" width="{}" height="{}">'
        '<style>{}</style><rect y="-22" width="100%" height="100%" fill="#fff"/>'
        '<text x="8" y="-7" font-weight="600" font-size="13">{}</text>{}{}</svg>\n'
    ).format(
        WIDTH, height, 2 * WIDTH, 2 * height, Markup(_SVG_STYLE), title,
        _body(drawn, floor=0.0) if drawn else "", keys,
    )  # fmt: skip


def _body(drawn: Sequence[Line], *, floor: float) -> Markup:
    edges = [edge for line in drawn for edge in (line.low, line.high) if edge is not None]
    points = [p for own in (*(line.points for line in drawn), *edges) for p in own]
    frame = _Frame.of([p for p in points if math.isfinite(p[1])], floor=floor)
    parts = (_band(line, frame) + _drawn(line, frame) for line in drawn)
    return Markup("").join([frame.axes(), *parts])


def _band(line: Line, frame: _Frame) -> Markup:
    """Return the area between the edges of a line; empty where it has none."""
    if line.low is None or line.high is None or len(line.low) < 2:
        return Markup("")
    path = [*_thinned(line.high), *reversed(_thinned(line.low))]
    points = " ".join(f"{frame.x(step):.1f},{frame.y(value):.1f}" for step, value in path)
    return Markup('<polygon class="band c{}" points="{}"/>').format(
        line.colour % NUM_COLOURS, points
    )


def smoothed(points: Series, *, width: int = 10) -> Series:
    """Return the mean of each point and those before it, as many as ``width``."""
    values: list[float] = []
    smooth = []
    for step, value in points:
        if math.isfinite(value):
            values = [*values[-(width - 1) :], value]
            smooth.append((step, sum(values) / len(values)))
    return smooth


@dataclass(frozen=True)
class _Frame:
    first: float
    last: float
    low: float
    high: float
    told: str = ""  # of its own range

    @classmethod
    def of(cls, points: Series, *, floor: float) -> _Frame:
        steps, values = [p[0] for p in points], [p[1] for p in points]
        low, high = min(values), max(values)
        told = ""
        if high - low < floor:
            told = f"the axis spans {floor:g} at least; values differ by {high - low:.2g}"
            low, high = _widened(low, high, floor)
        pad = (high - low) * 0.06 or abs(high) * 0.1 or 0.5
        first, last = min(steps), max(steps)
        return cls(first, last if last > first else first + 1, low - pad, high + pad, told)

    def x(self, step: float) -> float:
        return LEFT + (step - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def axes(self) -> Markup:
        """Return the grid with its numbers."""
        parts = []
        for value in _ticks(self.low, self.high, most=5):
            y = self.y(value)
            parts.append(
                Markup(
                    '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
                    '<text class="tick end" x="{}" y="{:.1f}">{}</text>'
                ).format(LEFT, WIDTH - RIGHT, y, y, LEFT - 5, y + 4, f"{value:.4g}")
            )
        for step in _ticks(self.first, self.last, most=5):
            if step == int(step):
                parts.append(
                    Markup('<text class="tick mid" x="{:.1f}" y="{}">{}</text>').format(
                        self.x(step), HEIGHT - 7, f"{int(step):,}"
                    )
                )
        if self.told:
            parts.append(
                Markup('<text class="tick" x="{}" y="{}">{}</text>').format(
                    LEFT + 4, TOP + 4, self.told
                )
            )
        return Markup("").join(parts)


def _widened(low: float, high: float, floor: float) -> tuple[float, float]:
    """Return a range of a width around a narrower one; what is never negative begins at 0."""
    middle = (low + high) / 2
    if low >= 0 and middle < floor / 2:
        return 0.0, floor
    return middle - floor / 2, middle + floor / 2


def _drawn(line: Line, frame: _Frame) -> Markup:
    points = _thinned([p for p in line.points if math.isfinite(p[1])])
    kind = f"c{line.colour % NUM_COLOURS}{' faint' if line.is_faint else ''}"
    if line.is_dots or len(points) == 1:
        return Markup("").join(
            Markup('<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="3"/>').format(
                kind, frame.x(step), frame.y(value)
            )
            for step, value in points
        )
    path = " ".join(f"{frame.x(step):.1f},{frame.y(value):.1f}" for step, value in points)
    return Markup('<polyline class="line {}" points="{}"/>').format(kind, path)


def _thinned(points: Series) -> Series:
    if len(points) <= MAX_POINTS:
        return points
    size = math.ceil(len(points) / MAX_POINTS)
    groups = [points[place : place + size] for place in range(0, len(points), size)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def _ticks(low: float, high: float, *, most: int) -> list[float]:
    """Return round numbers between two, at most so many."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return []
    size = 10 ** math.floor(math.log10((high - low) / most))
    step = next(size * by for by in (1, 2, 5, 10, 20) if (high - low) / (size * by) <= most)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step) + 1)]
