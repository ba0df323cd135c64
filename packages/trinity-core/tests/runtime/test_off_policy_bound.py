"""No row is older than its sync policy promises, whatever is fast, slow, short or evaluated.

The real loop on a clock of its own: runs of some ten rollout steps in a few milliseconds.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
from trinity.common.config import ExperienceBufferConfig
from trinity.extend import get_manager

sys.path.insert(0, str(Path(__file__).parent / "stories"))
from clocked_run import Parts, World, story_of
from scenarios import Scenario, parse_line

NUM_PLAIN, NUM_BROKEN_OFF, NUM_CHECKED = 40, 8, 16
BATCH = 4
# What rollout steps leave: a batch, several, a part of one, one that lost runs, anything.
STEPS = [(4,), (8,), (12,), (2,), (1,), (6,), (3, 4), (4, 5, 9), (0, 1, 4, 10)]
GROUPS = [(4,), (1,), (3, 5), (0, 2, 3)]
RUNS = [
    ("fixed", "in turns"), ("explorer_driven", "in turns"), ("trainer_driven", "in turns"),
    ("fixed", "overlapped"), ("explorer_driven", "overlapped"), ("trainer_driven", "overlapped"),
    ("fully_async", "overlapped"),
]  # fmt: skip


def a_scenario(style, how, seed):
    """Draw one; the same for the same arguments."""
    dice = random.Random(f"{style} {how} {seed}")
    in_groups, inflight = style == "fully_async", dice.randint(1, 4)
    return Scenario(
        style,
        interval=dice.randint(1, inflight if in_groups else 3),
        offset=dice.randint(0, 3) if style == "fixed" else 0,
        inflight=inflight,
        window=dice.choice([0.0, 0.3, 0.6, 1.0]),
        groups=dice.randint(1, 4),
        rows=dice.choice(GROUPS if in_groups else STEPS),
        batch=BATCH,
        steps=dice.randint(6, 16),
        train_limit=dice.choice([None, None, dice.randint(3, 20)]),
        tasks_end_after=None if in_groups else dice.choice([None, None, dice.randint(3, 12)]),
        has_evaluation=dice.random() < 0.5,
        eval_interval=dice.randint(0, 3),
        eval_on_startup=dice.random() < 0.5,
        overlap=how == "overlapped",
        train_s=dice.choice([0.1, 1.0, 3.0, 9.0]),
        seed=seed,
    )


def broken_off(scenario, kind, seed):
    """Return a scenario that is stopped or killed some times, and goes on from its checkpoints."""
    dice = random.Random(f"{kind} {seed}")
    after = tuple(sorted(dice.randint(1, 25) for _ in range(dice.randint(1, 4))))
    return replace(scenario, save_interval=dice.randint(0, 3), **{kind: after})


@cache
def plain_stories(style, how):
    drawn = [a_scenario(style, how, seed) for seed in range(NUM_PLAIN)]
    return [(scenario, story_of(scenario)) for scenario in drawn]


def policy_and_batch(scenario):
    parts = Parts(World(scenario))
    return (parts.policy.in_turns() if parts.in_turns else parts.policy), parts.rollouts.batch


def bound_of(scenario):
    """Return the most off-policy steps that a row of a run can have."""
    policy, batch = policy_and_batch(scenario)
    if policy.in_groups:
        return policy.max_off_policy_steps(batch=batch, most=1)
    unit = math.gcd(batch, *scenario.rows)
    return policy.max_off_policy_steps(batch=batch, most=max(scenario.rows), most_over=batch - unit)


def ages_of(story):
    """Return the off-policy steps of the oldest row of each train step."""
    versions, ages = {}, []
    for kind, number, *rest in map(parse_line, story):
        if kind == "begin":
            versions[number] = rest[0]
        if kind == "train":
            ages.append(number - 1 - min(versions[row] for row in rest[0]))
    return ages


def rows_of(story):
    """Return how many rows of each rollout were trained: by train steps as they were made last."""
    lines = map(parse_line, story)
    batches = {}
    for kind, number, *rest in lines:
        if kind == "train":  # what came later was of an attempt that is forgotten
            batches = {step: batch for step, batch in batches.items() if step < number}
            batches[number] = rest[0]
    return Counter(row for batch in batches.values() for row in batch)


def check_rows(story, scenario):
    """Hold that no row was trained twice, and none was left unless train steps are limited."""
    begun = {number for kind, number, *_ in map(parse_line, story) if kind == "begin"}
    left = {number: len(scenario.rows_of(number)) for number in begun}
    rows = rows_of(story)
    assert all(count <= left[number] for number, count in rows.items()), scenario
    if scenario.train_limit is None:
        assert rows == {number: count for number, count in left.items() if count}, scenario


class CheckedParts(Parts):
    """Parts of a run whose train steps the loop checks itself."""

    is_in_order = True

    def __init__(self, world):
        super().__init__(world)
        self.manager = get_manager()
        self.config.algorithm.sample_strategy = "default"
        queue = ExperienceBufferConfig(storage_type="queue")
        self.config.buffer.trainer_input.experience_buffer = queue

    def sample(self, step):
        rows, _ = super().sample(step)
        in_groups = self.groups is not None
        versions = [self.world.versions[row.info["group"] if in_groups else row] for row in rows]
        told = {"min": float(min(versions)), "mean": sum(versions) / len(versions)}
        return rows, {f"sample/model_version/{name}": value for name, value in told.items()}


checked_story_of = partial(story_of, kind=CheckedParts)


@pytest.mark.parametrize(("style", "how"), RUNS)
def test_no_row_is_older_than_the_policy_promises(style, how) -> None:
    for scenario, story in plain_stories(style, how):
        assert max(ages_of(story), default=0) <= bound_of(scenario), scenario


@pytest.mark.parametrize(("style", "how"), RUNS)
def test_rows_are_as_old_as_the_policy_says_in_many_runs(style, how) -> None:
    stories = plain_stories(style, how)
    reached = [
        bound_of(scenario)
        for scenario, story in stories
        if max(ages_of(story), default=-1) == bound_of(scenario)
    ]

    assert len(reached) > len(stories) / 5
    assert max(reached) > 1


@pytest.mark.parametrize(("style", "how"), RUNS)
def test_each_row_is_trained_once(style, how) -> None:
    for scenario, story in plain_stories(style, how):
        check_rows(story, scenario)


@pytest.mark.parametrize(("style", "how"), RUNS)
def test_the_loop_refuses_no_train_step_of_a_run(style, how) -> None:
    for seed in range(NUM_CHECKED):
        scenario = a_scenario(style, how, seed)
        assert checked_story_of(scenario) == story_of(scenario), scenario


@pytest.mark.parametrize(("style", "how"), RUNS)
def test_the_loop_refuses_no_train_step_of_a_second_start_with_other_settings(style, how) -> None:
    before = [one for one in RUNS if (one[0] == "fully_async") is (style == "fully_async")]
    for seed in range(NUM_CHECKED):
        first = a_scenario(*before[seed % len(before)], NUM_PLAIN + seed)
        first = broken_off(first, ("stops", "kills")[seed % 2], seed)
        second = replace(
            a_scenario(style, how, 2 * NUM_PLAIN + seed),
            rows=first.rows,
            groups=first.groups,
            steps=first.steps + 8,
            tasks_end_after=None,
        )
        check_rows(checked_story_of(first, second), second)


@pytest.mark.parametrize("kind", ["stops", "kills"])
@pytest.mark.parametrize(("style", "how"), RUNS)
def test_a_run_that_goes_on_keeps_the_bound_and_trains_each_row_once(style, how, kind) -> None:
    for seed in range(NUM_BROKEN_OFF):
        scenario = broken_off(a_scenario(style, how, NUM_PLAIN + seed), kind, seed)
        story = checked_story_of(scenario)
        assert max(ages_of(story), default=0) <= bound_of(scenario), scenario
        check_rows(story, scenario)


@pytest.mark.parametrize(
    ("interval", "offset", "age"),
    [(1, 0, 0), (1, 1, 1), (1, 3, 3), (2, 0, 1), (2, 1, 2), (3, 4, 6)],
)
@pytest.mark.parametrize("overlap", [False, True])
def test_of_rounds_with_one_batch_a_step_the_bound_is_reached(
    interval, offset, age, overlap
) -> None:
    one = Scenario("fixed", interval=interval, offset=offset, steps=20, overlap=overlap)

    assert max(ages_of(story_of(one))) == age == bound_of(one)


@pytest.mark.parametrize("style", ["explorer_driven", "trainer_driven"])
@pytest.mark.parametrize(("count", "age"), [(4, 3), (12, 11)])
def test_beside_a_slow_trainer_rows_are_as_old_as_the_slots_let_them_be(style, count, age) -> None:
    # four slots: all but the last batch of four steps
    one = Scenario(style, inflight=4, rows=(count,), steps=20, overlap=True, train_s=9.0)

    assert max(ages_of(story_of(one))) == age == bound_of(one)


@pytest.mark.parametrize(("window", "age"), [(0.0, 2), (0.3, 3)])
def test_groups_that_are_overtaken_are_as_old_as_the_window_lets_them_be(window, age) -> None:
    # 24 slots, batches of 8: (24 + 1 - 2) / 8 and (24 + 7 - 2) / 8
    drawn = [
        Scenario(
            "fully_async", inflight=3, groups=8, window=window, rows=(1,), train_s=0.1, steps=12,
            seed=seed,
        )
        for seed in range(4)
    ]  # fmt: skip

    assert max(max(ages_of(story_of(one))) for one in drawn) == age == bound_of(drawn[0])


def test_groups_that_began_before_the_first_batch_of_an_earlier_start_may_be_older() -> None:
    one = Scenario(
        "fully_async", inflight=4, rows=(1,), steps=8, has_evaluation=True, eval_on_startup=True,
        stops=(9,),
    )  # fmt: skip
    # eight groups have begun and none was consumed; with two slots none can be a step old

    story = checked_story_of(one, replace(one, inflight=1, stops=()))

    assert "train 4 6 7" in story
    assert story.index("save 0") < story.index("train 1 0 1")
