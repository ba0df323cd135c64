"""The frozen stories are whole: what must hold of any run holds of each of them."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from scenarios import FrozenStory, Scenario, parse_line, read_stories, story_line, write_stories

STORIES = read_stories()
STYLES = ("fixed", "explorer_driven", "trainer_driven")


def in_words(one: FrozenStory) -> str:
    return f"{one.section}: {one.scenario}"


def test_every_section_has_twenty_five_stories_of_each_of_its_styles() -> None:
    counts = Counter((one.section, one.scenario.style) for one in STORIES)
    sections = {section for section, _ in counts}

    assert len(sections) == 14
    assert set(counts.values()) == {25}
    for section in sections:
        styles = {style for other, style in counts if other == section}
        if section.startswith("groups"):
            assert styles == {"fully_async"}
        else:
            assert styles == ({"fixed"} if section == "train alone" else set(STYLES))


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("begin 3 v1", ("begin", 3, 1)),
        ("noted 3 4", ("noted", 3, 4)),
        ("train 2 3x2 4", ("train", 2, [3, 3, 4])),
        ("train 2", ("train", 2, [])),
        ("sync 2", ("sync", 2)),
    ],
)
def test_a_line_is_read_as_it_was_written(line, parts) -> None:
    assert parse_line(line) == parts
    assert story_line(*parts) == line


def test_the_file_is_written_as_it_was_read(tmp_path) -> None:
    write_stories(STORIES, tmp_path / "again.jsonl")

    assert read_stories(tmp_path / "again.jsonl") == STORIES


def test_a_row_is_trained_once_at_most_unless_it_is_replayed() -> None:
    for one in STORIES:
        if one.scenario.replay:
            continue
        trained = Counter(row for rows in last_train_steps(one).values() for row in rows)
        for number, count in trained.items():
            assert count <= len(one.scenario.rows_of(number)), in_words(one)


def test_a_rollout_begins_with_weights_that_were_trained_and_synced() -> None:
    for one in never_killed():
        version = 0
        for kind, number, *rest in map(parse_line, one.story):
            if kind in {"sync", "restored"}:
                version = number
            if kind in {"begin", "evaluate"} and one.scenario.style != "fully_async":
                assert rest == [version], in_words(one)
            if kind == "begin":
                assert rest[0] <= version, in_words(one)


def test_train_steps_are_numbered_one_after_the_other_between_restarts() -> None:
    for one in never_killed():
        step, saved = 0, 0
        for kind, number, *_ in map(parse_line, one.story):
            if kind in {"save", "note"}:
                saved = number
            if kind == "restored":
                step = saved
            if kind == "train":
                assert number == step + 1, in_words(one)
                step = number


def test_rollouts_leave_rows_in_turn() -> None:
    scenario = Scenario("fixed", rows=(0, 3))

    assert [scenario.rows_of(number) for number in (1, 2, 3)] == [[1] * 3, [], [3] * 3]


def last_train_steps(one: FrozenStory) -> dict[int, list[int]]:
    """Return the rows of each train step, as it was made last."""
    lines = map(parse_line, one.story)
    return {number: rest[0] for kind, number, *rest in lines if kind == "train"}


def never_killed() -> list[FrozenStory]:
    return [one for one in STORIES if not one.scenario.kills]
