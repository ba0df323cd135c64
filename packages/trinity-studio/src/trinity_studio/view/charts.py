"""Lines over steps as SVG, drawn here: they need no script, no network and no library."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity_studio.view.metrics_file import Series

__all__ = ["Line", "chart", "smoothed"]

WIDTH, HEIGHT = 420, 190
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 24
MAX_POINTS = 400  # more are drawn as means of neighbours
NUM_COLOURS = 8  # of the style sheet


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart.

    Attributes:
        label: for the legend.
        points: step and value.
        colour: which of the style sheet's.
        is_dots: dots instead of a line.
        is_faint: in the background.
    """

    label: str
    points: Series
    colour: int = 0
    is_dots: bool = False
    is_faint: bool = False


def chart(title: str, lines: Sequence[Line], *, note: str = "", floor: float = 0.0) -> Markup:
    """Return a chart with its legend; empty where no line has a point.

    Args:
        title: of it.
        lines: what it holds.
        note: beside the title.
        floor: the least that the axis of values spans, so that noise is not drawn as movement;
            where it does, the axis says so.
    """
    drawn = [line for line in lines if any(math.isfinite(value) for _, value in line.points)]
    if not drawn:
        return Markup("")
    points = [p for line in drawn for p in line.points if math.isfinite(p[1])]
    frame = _Frame.of(points, floor=floor)
    body = Markup("").join([frame.axes(), *(_drawn(line, frame) for line in drawn)])
    named = [line for line in drawn if line.label]
    legend = Markup("").join(
        Markup('<span class="key c{}">{}</span>').format(line.colour % NUM_COLOURS, line.label)
        for line in named
    )
    last = drawn[-1].points[-1] if len(drawn) == 1 else None
    value = Markup('<span class="last">{}</span>').format(f"{last[1]:.4g}") if last else ""
    return Markup(
        '<figure class="chart"><figcaption>{}{}<span class="note">{}</span></figcaption>'
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
        '<div class="legend">{}</div></figure>'
    ).format(title, value, note, WIDTH, HEIGHT, title, body, legend)


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
