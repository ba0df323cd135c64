"""In which order a run explores, trains and syncs, shown with parts that only count."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from trinity.errors import CheckpointError, RunFailedError, TrinityError
from trinity.runtime.loop import Interrupted


def asked_to_stop(parts):
    """Return a look that asks the run to stop."""
    return lambda step: setattr(parts.interrupt, "is_requested", True)


def test_a_run_that_is_asked_to_stop_before_it_begins_begins_nothing(fake_parts, loops) -> None:
    parts = fake_parts(steps=5)
    parts.interrupt.is_requested = True

    with pytest.raises(Interrupted):
        loops.of(parts).run()

    assert parts.story == ["save 0"]


class OwnError(BaseException):
    """What no ``except Exception`` sees."""


@pytest.mark.parametrize("error", [asyncio.CancelledError("judge"), OwnError("judge")])
@pytest.mark.parametrize("method", ["explore_step", "train_step"])
def test_what_was_trained_is_saved_when_a_part_fails_by_no_exception(
    method, error, fake_parts, loops
) -> None:
    parts = fake_parts(steps=4)

    def fails(step):
        if step == 3:
            raise error

    loops.before(parts, method, fails)

    with pytest.raises(TrinityError, match="judge"):
        loops.of(parts).run()

    assert parts.story[-1] == "save 2"


def test_what_was_trained_is_saved_when_a_storage_fails_by_no_exception(fake_parts, loops) -> None:
    parts = fake_parts(steps=4)
    available = parts.storage.available

    def fails():
        if "train 2: [2, 2, 2, 2]" in parts.story:
            raise OwnError
        return available()

    parts.storage.available = fails

    with pytest.raises(OwnError):
        loops.of(parts).run()

    assert parts.story[-1] == "save 2"


def test_a_second_ctrl_c_saves_nothing(fake_parts, loops) -> None:
    parts = fake_parts(steps=4)

    def stops(step):
        if step == 3:
            raise KeyboardInterrupt

    loops.before(parts, "train_step", stops)

    with pytest.raises(KeyboardInterrupt):
        loops.of(parts).run()

    assert parts.story[-1] == "explore 3"


def test_with_interval_one_exploring_and_training_take_turns(syncing, loops) -> None:
    parts = syncing(steps=2)

    loops.of(parts).run()

    assert parts.story == [
        "explore 1", "train 1: [1, 1, 1, 1]", "sync",
        "explore 2", "train 2: [2, 2, 2, 2]", "sync",
        "save 2",
    ]  # fmt: skip


def test_with_interval_two_the_weights_move_every_second_step(syncing, loops) -> None:
    parts = syncing(steps=3, interval=2)

    loops.of(parts).run()

    assert parts.story == [
        "explore 1", "explore 2", "train 1: [1, 1, 1, 1]", "train 2: [2, 2, 2, 2]", "sync",
        "explore 3", "train 3: [3, 3, 3, 3]", "sync",
        "save 3",
    ]  # fmt: skip


def test_with_an_offset_of_one_the_explorer_is_one_step_ahead(syncing, loops) -> None:
    parts = syncing(steps=3, offset=1)

    loops.of(parts).run()

    assert parts.story == [
        "explore 1", "explore 2", "train 1: [1, 1, 1, 1]", "sync",
        "explore 3", "train 2: [2, 2, 2, 2]", "sync",
        "train 3: [3, 3, 3, 3]", "sync",
        "save 3",
    ]  # fmt: skip


def test_a_last_short_batch_is_trained_before_the_sync(syncing, loops) -> None:
    parts = syncing(steps=1, per_step=10, train_batch=4)

    loops.of(parts).run()

    assert [line for line in parts.story if line.startswith("train")] == [
        "train 1: [1, 1, 1, 1]",
        "train 2: [1, 1, 1, 1]",
        "train 3: [1, 1]",
    ]


def test_a_limit_of_train_steps_ends_the_run(fake_parts, loops) -> None:
    parts = fake_parts(steps=10, num_train_steps=2)

    loop = loops.of(parts)
    loop.run()

    assert (loop.progress.explore_steps, loop.progress.train_steps) == (2, 2)


def test_checkpoints_are_written_every_save_interval_and_at_the_end(fake_parts, loops) -> None:
    parts = fake_parts(steps=5, save_interval=2)

    loops.of(parts).run()

    assert [line for line in parts.story if line.startswith("save")] == [
        "save 2",
        "save 4",
        "save 5",
    ]


def test_a_failure_while_exploring_saves_what_was_trained(fake_parts, loops) -> None:
    parts = fake_parts(steps=5, fails_at=3)

    with pytest.raises(RunFailedError):
        loops.of(parts).run()

    assert parts.story[-1] == "save 2"


def test_an_interrupt_while_exploring_saves_before_training(fake_parts, loops) -> None:
    parts = fake_parts(steps=5)
    loops.before(parts, "explore_step", asked_to_stop(parts))
    loop = loops.of(parts)

    with pytest.raises(Interrupted):
        loop.run()

    assert parts.story == ["explore 1", "save 0"]
    assert parts.rollouts.num_rows() == 4


def test_an_interrupted_run_trains_what_it_had_explored_and_goes_on(fake_parts, loops) -> None:
    parts = fake_parts(steps=2)
    loops.before(parts, "explore_step", asked_to_stop(parts))
    loop = loops.of(parts)
    with pytest.raises(Interrupted):
        loop.run()
    parts.interrupt.is_requested = False
    parts.explore_step = type(parts).explore_step.__get__(parts)

    loops.resumed(loop).run()

    assert parts.story == [
        "explore 1", "save 0", "train 1: [1, 1, 1, 1]",
        "explore 2", "train 2: [2, 2, 2, 2]", "save 2",
    ]  # fmt: skip


@pytest.mark.parametrize("stop_at", [1, 2, 3])
@pytest.mark.parametrize("style", ["fixed", "explorer_driven", "trainer_driven"])
def test_a_run_that_stops_between_training_and_sync_tells_of_each_sync_once(
    style, stop_at, syncing, loops
) -> None:
    parts, told = syncing(steps=3, style=style), []
    loops.observe(parts, lambda role, metrics, step: told.append((role, step)))
    loops.before(parts, "train_step", lambda step: step == stop_at and asked_to_stop(parts)(step))
    loop = loops.of(parts)
    with pytest.raises(Interrupted):
        loop.run()
    parts.interrupt.is_requested = False

    loops.resumed(loop).run()

    assert [step for role, step in told if role == "synchronizer"] == [1, 2, 3]


def test_the_last_evaluation_is_of_the_weights_that_the_run_leaves(evaluating, loops) -> None:
    parts = evaluating(steps=2, offset=1, eval_interval=2)

    loops.of(parts).run()

    assert parts.story == [
        "explore 1", "explore 2", "train 1: [1, 1, 1, 1]",
        "train 2: [2, 2, 2, 2]", "evaluate 2", "save 2",
    ]  # fmt: skip


def test_an_evaluation_that_an_interrupt_came_before_is_made_after_it(evaluating, loops) -> None:
    parts = evaluating(steps=2, eval_interval=1)
    loops.before(parts, "explore_step", asked_to_stop(parts))
    loop = loops.of(parts)
    with pytest.raises(Interrupted):
        loop.run()
    parts.interrupt.is_requested = False
    parts.explore_step = type(parts).explore_step.__get__(parts)

    loops.resumed(loop).run()

    assert [line for line in parts.story if line.startswith("evaluate")] == [
        "evaluate 1",
        "evaluate 2",
    ]


def test_a_checkpoint_of_the_last_step_is_not_written_twice(fake_parts, loops) -> None:
    parts = fake_parts(steps=2, save_interval=1)

    loops.of(parts).run()

    assert parts.story[-2:] == ["save 2", "note 2"]


def test_a_batch_that_cannot_be_trained_waits_in_the_checkpoint_again(fake_parts, loops) -> None:
    parts = fake_parts(steps=2, train_fails_at=2)
    loop = loops.of(parts)

    with pytest.raises(TrinityError, match="optimizer step 2 failed: ValueError: the loss of a"):
        loop.run()
    assert (parts.storage.rows, parts.rollouts.num_rows()) == ([2, 2, 2, 2], 4)

    parts.train_fails_at = None
    loops.resumed(loop).run()
    assert parts.story[-2:] == ["train 2: [2, 2, 2, 2]", "save 2"]


def test_a_failure_is_told_even_if_nothing_can_be_saved_after_it(fake_parts, loops) -> None:
    parts = fake_parts(steps=3, fails_at=2)

    def disk_is_full(progress, explorer_state) -> None:
        raise CheckpointError("no space left")

    parts.save = disk_is_full

    with pytest.raises(RunFailedError, match="too many runs failed"):
        loops.of(parts).run()


def test_a_run_that_was_at_its_end_keeps_no_more_steps_back_than_there_are(
    fake_parts, loops
) -> None:
    parts = fake_parts(steps=2, offset=3)
    loop = loops.of(parts)
    loop.run()  # trains all, the offset's steps too
    parts.num_explore_steps = parts.total_steps = 4

    loops.resumed(loop).run()

    trained = [line for line in parts.story if line.startswith("train")]
    assert trained == [f"train {step}: {[step] * 4}" for step in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("part", "what"),
    [("sample", "sampling for optimizer step 1"), ("sync", "the sync after explore step 1")],
)
def test_an_error_of_a_strategy_or_a_sync_method_says_what_it_broke(
    syncing, part, what, loops
) -> None:
    def breaks(*arguments):
        raise KeyError("no such weights")

    parts = syncing(steps=1)
    if part == "sample":
        parts.sample = breaks
    else:
        parts.sync = SimpleNamespace(sync=breaks)

    with pytest.raises(TrinityError, match=f"{what} failed: KeyError: 'no such weights' at "):
        loops.of(parts).run()


def test_a_row_of_an_evaluation_names_the_weights_that_it_is_of(syncing, loops) -> None:
    parts, versions = syncing(steps=4, interval=2, eval_interval=3), {}
    parts.has_evaluation = True

    def record(role, metrics, *, step):
        if role == "explorer" and "time/eval_s" in metrics:
            versions[step] = metrics["sync/model_version"]

    loops.observe(parts, record)

    loops.of(parts).run()

    assert versions == {3: 2.0, 4: 4.0}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"interval": 2}, [(2, 22.0), (4, 22.0), (5, 11.0)]),
        # Two batches a step, each with its weights: what is trained after the first is told too.
        (
            {"style": "trainer_driven", "train_batch": 2},
            [row for step in range(1, 6) for row in ((step, 11.0), (step, 1.0))],
        ),
    ],
)
def test_a_step_is_all_since_the_last_sync(syncing, monkeypatch, settings, told, loops) -> None:
    parts, seconds, steps = syncing(steps=5, **settings), [], []
    monkeypatch.setattr("trinity.runtime.loop.time.perf_counter", lambda: sum(seconds))
    loops.before(parts, "explore_step", lambda step: seconds.append(10.0))
    loops.before(parts, "train_step", lambda step: seconds.append(1.0))

    def record(role, metrics, *, step):
        if role == "synchronizer":
            steps.append((step, metrics["time/step_s"]))

    loops.observe(parts, record)

    loops.of(parts).run()

    assert steps == told


def test_an_explorer_that_decides_takes_only_weights_that_are_newer(syncing, loops) -> None:
    parts = syncing(steps=5, per_step=10, train_batch=16, style="explorer_driven")

    loops.of(parts).run()

    assert parts.story == [
        "explore 1",  # 10 experiences: too few for a batch, and nothing newer to take
        "explore 2", f"train 1: {[1] * 10 + [2] * 6}", "sync",
        "explore 3",  # 4 + 10
        "explore 4", f"train 2: {[2] * 4 + [3] * 10 + [4] * 2}", "sync",
        "explore 5", f"train 3: {[4] * 8 + [5] * 8}", "sync",
        "train 4: [5, 5]", "sync",  # the end: nothing is lost
        "save 4",
    ]  # fmt: skip


def test_an_explorer_that_decides_asks_each_interval_of_its_own_steps(syncing, loops) -> None:
    parts = syncing(steps=5, per_step=4, train_batch=8, interval=2, style="explorer_driven")

    loops.of(parts).run()

    assert parts.story == [
        "explore 1", "explore 2", f"train 1: {[1] * 4 + [2] * 4}", "sync",
        "explore 3", "explore 4", f"train 2: {[3] * 4 + [4] * 4}", "sync",
        "explore 5", "train 3: [5, 5, 5, 5]", "sync",
        "save 3",
    ]  # fmt: skip


def test_a_trainer_that_decides_hands_over_each_interval_of_its_own_steps(syncing, loops) -> None:
    parts = syncing(steps=3, per_step=10, train_batch=8, interval=2, style="trainer_driven")

    loops.of(parts).run()

    assert parts.story == [
        "explore 1",  # one batch is there, but the steps to the next sync need two
        "explore 2", f"train 1: {[1] * 8}", f"train 2: {[1] * 2 + [2] * 6}", "sync",
        "explore 3",  # 4 + 10
        f"train 3: {[2] * 4 + [3] * 4}", "train 4: [3, 3, 3, 3, 3, 3]", "sync",
        "save 4",
    ]  # fmt: skip


@pytest.mark.parametrize("style", ["explorer_driven", "trainer_driven"])
@pytest.mark.parametrize("interval", [1, 2, 3])
def test_with_any_style_a_stopped_run_tells_the_story_of_an_unbroken_one(
    syncing, style, interval, loops
) -> None:
    settings = {"per_step": 10, "train_batch": 16, "interval": interval, "style": style}
    whole, stopped = (syncing(steps=7, **settings) for _ in "ab")
    loops.of(whole).run()
    loop = loops.of(stopped)
    for name in ("explore_step", "train_step"):
        loops.before(stopped, name, asked_to_stop(stopped))
    while True:
        try:
            loop.run()
        except Interrupted:
            stopped.interrupt.is_requested = False
            loop = loops.resumed(loop)
            continue
        break

    def steps(parts):  # after a restart engines have the trainer's weights without a sync
        return [line for line in parts.story if line.startswith(("explore", "train"))]

    assert steps(stopped) == steps(whole)
    trained = sum(line.count(",") + 1 for line in whole.story if line.startswith("train"))
    assert trained == 70


def test_what_is_too_old_to_be_trained_ends_the_turn(syncing, loops) -> None:
    parts = syncing(steps=2, style="explorer_driven")

    def all_too_old(step):
        parts.storage.rows.clear()
        raise StopIteration

    parts.sample = all_too_old
    loop = loops.of(parts)
    loop.run()

    assert parts.story == ["explore 1", "explore 2", "save 0"]
    assert parts.rollouts.num_rows() == 0


def test_a_trainer_whose_next_batch_is_too_old_hands_over_what_it_has(syncing, loops) -> None:
    parts = syncing(steps=3, train_batch=4, interval=2, style="trainer_driven")
    sample = parts.sample

    def second_too_old(step):
        if parts.storage.rows == [2] * 4:
            parts.storage.rows.clear()
            raise StopIteration
        return sample(step)

    parts.sample = second_too_old
    loops.of(parts).run()

    assert parts.story == [
        "explore 1",
        "explore 2", "train 1: [1, 1, 1, 1]", "sync",  # a resumed run would go on with these too
        "explore 3", "train 2: [3, 3, 3, 3]", "sync",
        "save 2",
    ]  # fmt: skip
