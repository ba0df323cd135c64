"""A checkpoint tells how far the run was, also one that an earlier version wrote."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from trinity.common.sync_policy import Consume, Frees, SyncPolicy
from trinity.explorer.rollout_buffer import RolloutBuffer
from trinity.runtime.record.progress import Progress, read_progress, read_rollouts

sys.path.insert(0, str(Path(__file__).parents[1] / "stories"))
from clocked_run import Parts, World, start, story_of
from scenarios import Scenario, parse_line, story_line

ROWS = SyncPolicy(style="", consume=Consume.ROWS, max_active=3, frees=Frees.TRAIN_STEP)


def rounds(interval, offset):
    return SyncPolicy(
        style="", consume=Consume.ROUNDS, max_active=interval + offset, pull_every=interval
    )


def earlier(*, flight=None, **progress):
    """Return a state of version 0.1, as a checkpoint holds it."""
    beginning = {
        "explored": 0,
        "trained": 0,
        "num_due": 0,  # rows that the trainer may train,
        "written": [],  # and of each explore step after those
        "synced": 0,  # the explore step after which rollouts got weights
        "pulled": 0,  # the train steps that those weights had
        "trained_experiences": 0,
        "evaluated": -1,
        "evaluated_trained": -1,
        "first_evaluation": {},
        "evaluation": {},
    }
    explorer = {"tasks": {}} if flight is None else {"tasks": {}, "flight": flight}
    return {"progress": beginning | progress, "explorer": explorer}


def a_flight(*, running=(), waiting=(), taken=(), num_begun, num_taken):
    """Return groups as version 0.1 wrote them: batches of 2, four places, a window of 3."""
    return {
        "batch_size": 2,
        "capacity": 4,
        "window": 3,
        "num_begun": num_begun,
        "num_taken": num_taken,
        "running": [[number, {"taskset_id": 0, "index": number}] for number in running],
        "waiting": [list(one) for one in waiting],
        "taken": list(taken),
    }


def left_of(state, policy):
    """Return the rows that each rollout step has left."""
    return {number: left for number, _, _, left, _ in read_rollouts(state, policy)["slots"]}


def slots_of(state, policy=ROWS):
    """Return number, state and rows of each slot."""
    slots = read_rollouts(state, policy)["slots"]
    return [(number, name, left) for number, name, _, left, _ in slots]


# --- how far the run is -----------------------------------------------------------------------


def test_progress_is_read_as_it_was_written() -> None:
    progress = Progress(explore_steps=5, train_steps=4, weights_version=3, last_sync_step=4)
    progress.note_evaluation({"eval/rows/reward/mean@1": 0.5})
    state = {"progress": json.loads(json.dumps(progress.state_dict())), "explorer": {}}

    assert read_progress(state) == progress


def test_all_that_the_earlier_version_told_is_told_by_other_names() -> None:
    state = earlier(
        explored=5, trained=4, synced=4, pulled=3, written=[4], trained_experiences=16,
        evaluated=2, evaluated_trained=1, first_evaluation={"a": 0.1}, evaluation={"a": 0.2},
    )  # fmt: skip

    progress = read_progress(state)

    assert (progress.explore_steps, progress.train_steps) == (5, 4)
    assert (progress.weights_version, progress.last_sync_step) == (3, 4)
    assert (progress.evaluated_step, progress.evaluated_version) == (2, 1)
    assert progress.trained_experiences == 16
    assert (progress.first_evaluation, progress.evaluation) == ({"a": 0.1}, {"a": 0.2})


def test_a_batch_of_groups_that_was_taken_and_not_trained_is_an_explore_step_less() -> None:
    flight = a_flight(taken=[0, 1], num_begun=2, num_taken=2)
    in_hand = earlier(flight=flight, explored=3, trained=2, num_due=4)
    trained = earlier(flight=flight, explored=3, trained=3)

    assert read_progress(in_hand).explore_steps == 2
    assert read_progress(trained).explore_steps == 3


# --- rollout steps ----------------------------------------------------------------------------


def test_rows_that_were_written_are_of_the_youngest_steps() -> None:
    state = earlier(explored=6, trained=4, synced=3, pulled=3, written=[3, 0, 4])

    assert slots_of(state) == [(4, "ready", 3), (5, "ready", 0), (6, "ready", 4)]
    assert read_rollouts(state, ROWS)["begun"] == 6
    assert {version for _, _, version, *_ in read_rollouts(state, ROWS)["slots"]} == {3}


def test_rows_that_were_due_are_of_the_step_before_those() -> None:
    assert left_of(earlier(explored=6, num_due=3, written=[4, 4]), ROWS) == {4: 3, 5: 4, 6: 4}
    assert left_of(earlier(explored=6, num_due=3), ROWS) == {6: 3}


def test_where_nothing_was_left_no_rollout_step_holds_a_slot() -> None:
    state = earlier(explored=6, trained=6, synced=6, pulled=6)

    assert slots_of(state) == []


def test_steps_of_which_all_was_trained_hold_no_slot_where_the_train_step_frees_it() -> None:
    state = earlier(explored=6, trained=4, written=[0, 3, 4])
    buffer = RolloutBuffer(ROWS, batch=4)
    buffer.load_state_dict(read_rollouts(state, ROWS))

    assert {number: one.left for number, one in buffer.slots.items()} == {5: 3, 6: 4}
    assert (buffer.begun, buffer.num_rows()) == (6, 7)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        # before the sync after step 3: nothing was trained
        ({"explored": 2, "written": [4, 4]}, {1: 4, 2: 4}),
        # there: one of the two batches of round 1 was trained
        ({"explored": 3, "trained": 1, "num_due": 4, "written": [4]}, {1: 0, 2: 4, 3: 4}),
        # both were; steps 1 and 2 hold their slots until the sync
        ({"explored": 3, "trained": 2, "written": [4]}, {1: 0, 2: 0, 3: 4}),
        # after it
        ({"explored": 3, "trained": 2, "pulled": 2, "synced": 3, "written": [4]}, {3: 4}),
        # and a step later, beside which step 3 was trained
        ({"explored": 4, "trained": 3, "pulled": 2, "synced": 3, "written": [0, 4]}, {3: 0, 4: 4}),
    ],
)
def test_the_steps_of_a_round_hold_their_slots_until_its_sync(given, left) -> None:
    assert left_of(earlier(**given), rounds(interval=2, offset=1)) == left


def test_what_is_ready_of_a_round_is_what_the_earlier_version_could_train_next() -> None:
    state = earlier(explored=3, trained=0, num_due=8, written=[4])  # steps 1 and 2 were due
    buffer = RolloutBuffer(rounds(interval=2, offset=1), batch=4)
    buffer.load_state_dict(read_rollouts(state, buffer.policy))

    assert buffer.num_rows(last=2) == 8
    assert buffer.num_rows() == 12


def test_a_state_of_now_holds_its_buffer_itself() -> None:
    buffer = RolloutBuffer(ROWS, batch=4)
    buffer.finish(buffer.begin().number, 3)
    state = {
        "progress": Progress(explore_steps=1).state_dict(),
        "explorer": {"rollouts": buffer.state_dict()},
    }

    assert read_rollouts(state, ROWS) == buffer.state_dict()


def test_a_state_of_now_that_names_no_buffer_says_nothing_of_it() -> None:
    assert read_rollouts({"progress": Progress().state_dict(), "explorer": {}}, ROWS) is None


# --- groups -----------------------------------------------------------------------------------


def test_groups_that_ran_waited_or_were_taken_hold_their_slots() -> None:
    flight = a_flight(
        running=[2, 5], waiting=[(3, 1), (4, 2)], taken=[0, 1], num_begun=6, num_taken=2
    )
    state = earlier(flight=flight, explored=1, trained=1)

    assert slots_of(state) == [
        (0, "consumed", 0),
        (1, "consumed", 0),
        (2, "running", 0),
        (3, "ready", 1),
        (4, "ready", 1),
        (5, "running", 0),
    ]


def test_a_buffer_goes_on_with_the_groups_of_the_earlier_version() -> None:
    flight = a_flight(
        running=[2, 5], waiting=[(3, 1), (4, 2)], taken=[0, 1], num_begun=6, num_taken=2
    )
    policy = SyncPolicy(style="", consume=Consume.GROUPS, max_active=6, window=1)
    buffer = RolloutBuffer(policy, batch=2)
    buffer.load_state_dict(read_rollouts(earlier(flight=flight, explored=1, trained=1), policy))

    assert {number: one.task for number, one in buffer.running.items()} == {
        number: {"taskset_id": 0, "index": number} for number in (2, 5)
    }
    assert (buffer.num_ready, buffer.num_consumed, buffer.num_wanted) == (2, 2, 6)
    assert {n: buffer.slots[n].version for n in (3, 4)} == {3: 1, 4: 2}
    assert (buffer.widest_policy.max_active, buffer.widest_policy.window) == (6, 3)
    buffer.weights_synced(version=1)
    assert buffer.begin().number == 6


def test_a_batch_that_was_taken_and_not_trained_is_ready_again() -> None:
    flight = a_flight(running=[4], taken=[0, 1, 3, 2], num_begun=5, num_taken=4)
    state = earlier(flight=flight, explored=2, trained=1, num_due=4)

    assert slots_of(state) == [
        (0, "consumed", 0), (1, "consumed", 0), (2, "ready", 1), (3, "ready", 1), (4, "running", 0),
    ]  # fmt: skip
    assert read_rollouts(state, ROWS)["num_consumed"] == 2


def test_of_a_last_short_batch_that_was_not_trained_no_group_more_is_ready_again() -> None:
    flight = a_flight(taken=[2, 3, 4], num_begun=5, num_taken=5)  # 2 and 3 were trained
    state = earlier(flight=flight, explored=3, trained=2, num_due=2)

    assert slots_of(state) == [(2, "consumed", 0), (3, "consumed", 0), (4, "ready", 1)]
    assert read_rollouts(state, ROWS)["num_consumed"] == 4


# --- runs that go on --------------------------------------------------------------------------


def story_after(state, *, rows, scenario):
    """Return what happens in a run that goes on from a state, with these rows in the storage."""
    world = World(scenario)
    world.saved = {"state": state, "rows": list(rows)}
    start(world, Parts(world))
    return [story_line(*line) for line in world.story]


def trained(story):
    """Return the rows of each train step, by their rollout step."""
    lines = map(parse_line, story)
    return {number: rest[0] for kind, number, *rest in lines if kind == "train"}


def test_a_run_of_rounds_goes_on_from_a_state_of_the_earlier_version() -> None:
    state = earlier(explored=5, trained=4, synced=5, pulled=4, written=[4])
    scenario = Scenario("fixed", interval=2, offset=1, steps=8)

    story = story_after(state, rows=[5] * 4, scenario=scenario)

    assert story[:8] == [
        "restored 4", "begin 6 v4", "noted 6 4", "begin 7 v4", "noted 7 4",
        "train 5 5x4", "train 6 6x4", "sync 6",
    ]  # fmt: skip
    assert trained(story) == {step: [step] * 4 for step in (5, 6, 7, 8)}


def test_a_round_that_was_half_trained_in_the_earlier_version_is_trained_to_its_end() -> None:
    state = earlier(explored=5, trained=3, synced=3, pulled=2, num_due=4, written=[4])
    scenario = Scenario("fixed", interval=2, offset=1, steps=8)

    story = story_after(state, rows=[4] * 4 + [5] * 4, scenario=scenario)

    assert story[1:4] == ["train 4 4x4", "sync 4", "begin 6 v4"]
    assert trained(story) == {step: [step] * 4 for step in (4, 5, 6, 7, 8)}


@pytest.mark.parametrize("style", ["explorer_driven", "trainer_driven"])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_driven_run_goes_on_from_a_state_of_the_earlier_version(style, overlap) -> None:
    state = earlier(explored=5, trained=3, synced=3, pulled=3, num_due=0, written=[4, 4])
    scenario = Scenario(style, steps=8, overlap=overlap)

    story = story_after(state, rows=[4] * 4 + [5] * 4, scenario=scenario)

    assert trained(story) == {step: [step] * 4 for step in (4, 5, 6, 7, 8)}


@pytest.mark.parametrize("style", ["fixed", "explorer_driven", "trainer_driven"])
def test_a_run_that_only_explores_goes_on_from_a_state_of_the_earlier_version(style) -> None:
    scenario = Scenario(style, steps=6, mode="explore")

    story = story_after(earlier(explored=3), rows=(), scenario=scenario)

    assert [line for line in story if line.startswith("begin")] == [
        "begin 4 v0", "begin 5 v0", "begin 6 v0",
    ]  # fmt: skip


STYLES = [
    {"style": "fixed"},
    {"style": "fixed", "interval": 2},
    {"style": "fixed", "interval": 2, "offset": 1},
    {"style": "explorer_driven", "interval": 2},
    {"style": "trainer_driven"},
]


def in_words(settings):
    return " ".join(map(str, settings.values()))


@pytest.mark.parametrize("after", STYLES, ids=in_words)
@pytest.mark.parametrize("before", STYLES, ids=in_words)
def test_a_second_start_may_have_another_style_or_interval(before, after) -> None:
    """No row is lost or trained twice, and the run comes to its end."""
    for stops in ((6,), (9,), (12,), ()):
        first = Scenario(**before, steps=6, stops=stops)

        story = story_of(first, Scenario(**after, steps=10))

        batches = trained(story)
        assert list(batches) == list(range(1, len(batches) + 1)), story
        rows = Counter(row for batch in batches.values() for row in batch)
        assert rows == dict.fromkeys(range(1, 11), 4), story
