"""The axis of a chart can be read: it has numbers enough, and not too many."""

from __future__ import annotations

import pytest
from trinity_studio.view.charts import Line, chart


@pytest.mark.parametrize("low", [0.13, 0.0, -3.0, 100.0])
@pytest.mark.parametrize("width", [0.83, 0.1, 0.17, 0.41, 1.0, 4.2, 999.0])
def test_the_height_of_a_chart_has_two_to_six_numbers(low: float, width: float) -> None:
    drawn = chart("reward", [Line(label="", points=[(0, low), (1, low + width)])])

    assert 2 <= drawn.count('class="tick end"') <= 6
