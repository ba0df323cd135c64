"""The loop tells the frozen stories again: of each style, in turns and overlapped, stopped, killed.

Two differences were accepted with the loop, and nothing else: a checkpoint of a place that a
checkpoint holds already may be restated instead of written again, and engines that have the
trainer's weights after a restart do not get them a second time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from clocked_run import story_of
from scenarios import parse_line, read_stories

STORIES = read_stories()
SECTIONS = sorted({(one.section, one.scenario.style) for one in STORIES})


@pytest.mark.parametrize(("section", "style"), SECTIONS)
def test_the_loop_tells_the_frozen_stories(section, style) -> None:
    told = [one for one in STORIES if (one.section, one.scenario.style) == (section, style)]

    for one in told:
        assert comparable(story_of(one.scenario)) == comparable(one.story), one.scenario


def test_rows_of_the_steps_that_run_ahead_are_not_trained_before_their_round() -> None:
    too_old = [one for one in STORIES if one.section == "in turns, rows too old"]
    offsets = [one.scenario for one in too_old if one.scenario.style == "fixed"]

    for scenario in offsets:
        lines = [parse_line(line) for line in story_of(scenario)]
        last_noted = max(place for place, line in enumerate(lines) if line[0] == "noted")
        explored = 0
        for kind, number, *rest in lines[:last_noted]:  # after it the run trains all that is left
            explored = number if kind == "noted" else explored
            if kind == "train":
                assert max(rest[0]) <= explored - scenario.offset, scenario


def comparable(story: list[str]) -> list[str]:
    """Return a story without the two differences that were accepted."""
    kept, version = [], "0"
    for line in story:
        kind, number, *_ = line.split()
        if kind == "sync" and number == version:
            continue
        version = number if kind in {"sync", "restored"} else version
        kept.append(line.replace("note", "save"))
    return kept
