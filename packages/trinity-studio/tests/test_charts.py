"""The axis of a chart can be read: it has numbers enough, and not too many."""

from __future__ import annotations

import pytest
from trinity_studio.view.charts import Line, chart
from trinity_studio.view.figures import _off_policy_steps


def height_of(drawn: str) -> float:
    """Return by how much the line of a chart goes up and down."""
    points = drawn.split('points="')[1].partition('"')[0].split()
    heights = [float(point.split(",")[1]) for point in points]
    return max(heights) - min(heights)


def test_noise_is_not_drawn_as_movement_and_the_axis_says_what_it_spans() -> None:
    lines = [Line(label="", points=[(0, 1e-8), (1, 3e-8), (2, 2e-8)])]

    drawn = str(chart("KL", lines, floor=1e-3))

    assert height_of(drawn) < 0.1  # of 190
    assert height_of(str(chart("KL", lines))) > 100
    assert "the axis spans 0.001 at least; values differ by 2e-08" in drawn
    assert ">0</text>" in drawn  # what is never negative begins at 0


def test_a_movement_that_is_larger_than_the_least_fills_the_chart() -> None:
    drawn = str(chart("KL", [Line(label="", points=[(0, 0.0), (1, 0.01)])], floor=1e-3))

    assert height_of(drawn) > 100
    assert "at least" not in drawn


def test_a_constant_above_the_least_stands_in_the_middle() -> None:
    drawn = str(chart("entropy", [Line(label="", points=[(0, 2.0), (1, 2.0)])], floor=0.01))

    assert height_of(drawn) == 0
    assert ">2</text>" in drawn


@pytest.mark.parametrize("low", [0.13, 0.0, -3.0, 100.0])
@pytest.mark.parametrize("width", [0.83, 0.1, 0.17, 0.41, 1.0, 4.2, 999.0])
def test_the_height_of_a_chart_has_two_to_six_numbers(low: float, width: float) -> None:
    drawn = chart("reward", [Line(label="", points=[(0, low), (1, low + width)])])

    assert 2 <= drawn.count('class="tick end"') <= 6


def test_staleness_is_counted_from_the_policy_version_that_a_step_trains() -> None:
    assert _off_policy_steps([(1, 0.0), (2, 0.0), (3, 1.5)]) == [(1, 0.0), (2, 1.0), (3, 0.5)]


def test_versions_of_another_run_have_none() -> None:
    assert _off_policy_steps([(1, 0.0), (2, 40.0)]) == []
