"""In which order a run explores, trains and syncs, shown with parts that only count."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from trinity.errors import CheckpointError, RunFailedError, TrinityError
from trinity.runtime.pipeline import Interrupted, Pipeline
from trinity.runtime.record.progress import Progress


def test_with_interval_one_exploring_and_training_take_turns(syncing) -> None:
    parts = syncing(steps=2)

    Pipeline(parts).run()

    assert parts.story == [
        "explore 1", "train 1: [1, 1, 1, 1]", "sync",
        "explore 2", "train 2: [2, 2, 2, 2]", "sync",
        "save 2",
    ]  # fmt: skip


def test_with_interval_two_the_weights_move_every_second_step(syncing) -> None:
    parts = syncing(steps=3, interval=2)

    Pipeline(parts).run()

    assert parts.story == [
        "explore 1", "explore 2", "train 1: [1, 1, 1, 1]", "train 2: [2, 2, 2, 2]", "sync",
        "explore 3", "train 3: [3, 3, 3, 3]", "sync",
        "save 3",
    ]  # fmt: skip


def test_with_an_offset_of_one_the_explorer_is_one_step_ahead(syncing) -> None:
    parts = syncing(steps=3, offset=1)

    Pipeline(parts).run()

    assert parts.story == [
        "explore 1", "explore 2", "train 1: [1, 1, 1, 1]", "sync",
        "explore 3", "train 2: [2, 2, 2, 2]", "sync",
        "train 3: [3, 3, 3, 3]", "sync",
        "save 3",
    ]  # fmt: skip


def test_a_last_short_batch_is_trained_before_the_sync(syncing) -> None:
    parts = syncing(steps=1, per_step=10, train_batch=4)

    Pipeline(parts).run()

    assert [line for line in parts.story if line.startswith("train")] == [
        "train 1: [1, 1, 1, 1]",
        "train 2: [1, 1, 1, 1]",
        "train 3: [1, 1]",
    ]


def test_a_limit_of_train_steps_ends_the_run(fake_parts) -> None:
    parts = fake_parts(steps=10, num_train_steps=2)

    pipeline = Pipeline(parts)
    pipeline.run()

    assert (pipeline.progress.explored, pipeline.progress.trained) == (2, 2)


def test_checkpoints_are_written_every_save_interval_and_at_the_end(fake_parts) -> None:
    parts = fake_parts(steps=5, save_interval=2)

    Pipeline(parts).run()

    assert [line for line in parts.story if line.startswith("save")] == [
        "save 2",
        "save 4",
        "save 5",
    ]


def test_a_failure_while_exploring_saves_what_was_trained(fake_parts) -> None:
    parts = fake_parts(steps=5, fails_at=3)

    with pytest.raises(RunFailedError):
        Pipeline(parts).run()

    assert parts.story[-1] == "save 2"


def test_an_interrupt_while_exploring_saves_before_training(fake_parts) -> None:
    parts = fake_parts(steps=5)
    parts.interrupt.is_requested = True
    pipeline = Pipeline(parts)

    with pytest.raises(Interrupted):
        pipeline.run()

    assert parts.story == ["explore 1", "save 0"]
    assert pipeline.progress.written == [4]


def test_an_interrupted_run_trains_what_it_had_explored_and_goes_on(fake_parts) -> None:
    parts = fake_parts(steps=2)
    parts.interrupt.is_requested = True
    pipeline = Pipeline(parts)
    with pytest.raises(Interrupted):
        pipeline.run()
    parts.interrupt.is_requested = False

    pipeline.run()

    assert parts.story == [
        "explore 1", "save 0", "train 1: [1, 1, 1, 1]",
        "explore 2", "train 2: [2, 2, 2, 2]", "save 2",
    ]  # fmt: skip


def test_the_last_evaluation_is_of_the_weights_that_the_run_leaves(evaluating) -> None:
    parts = evaluating(steps=2, offset=1, eval_interval=2)

    Pipeline(parts).run()

    assert parts.story == [
        "explore 1", "explore 2", "train 1: [1, 1, 1, 1]",
        "train 2: [2, 2, 2, 2]", "evaluate 2", "save 2",
    ]  # fmt: skip


def test_an_evaluation_that_an_interrupt_came_before_is_made_after_it(evaluating) -> None:
    parts = evaluating(steps=2, eval_interval=1)
    parts.interrupt.is_requested = True
    pipeline = Pipeline(parts)
    with pytest.raises(Interrupted):
        pipeline.run()
    parts.interrupt.is_requested = False

    pipeline.run()

    assert [line for line in parts.story if line.startswith("evaluate")] == [
        "evaluate 1",
        "evaluate 2",
    ]


def test_a_checkpoint_of_the_last_step_is_not_written_twice(fake_parts) -> None:
    parts = fake_parts(steps=2, save_interval=1)

    Pipeline(parts).run()

    assert parts.story[-2:] == ["save 2", "note 2"]


def test_a_batch_that_cannot_be_trained_waits_in_the_checkpoint_again(fake_parts) -> None:
    parts = fake_parts(steps=2, train_fails_at=2)
    pipeline = Pipeline(parts)

    with pytest.raises(TrinityError, match="optimizer step 2 failed: ValueError: the loss of a"):
        pipeline.run()
    assert (parts.storage.rows, pipeline.progress.num_due) == ([2, 2, 2, 2], 4)

    parts.train_fails_at = None
    pipeline.run()
    assert parts.story[-2:] == ["train 2: [2, 2, 2, 2]", "save 2"]


def test_a_failure_is_told_even_if_nothing_can_be_saved_after_it(fake_parts) -> None:
    parts = fake_parts(steps=3, fails_at=2)

    def disk_is_full(progress, explorer_state) -> None:
        raise CheckpointError("no space left")

    parts.save = disk_is_full

    with pytest.raises(RunFailedError, match="too many runs failed"):
        Pipeline(parts).run()


def test_a_run_that_was_at_its_end_keeps_no_more_steps_back_than_there_are(fake_parts) -> None:
    parts = fake_parts(steps=2, offset=3)
    pipeline = Pipeline(parts)
    pipeline.run()  # trains all, the offset's steps too
    parts.num_explore_steps = parts.total_steps = 4

    pipeline.run()

    trained = [line for line in parts.story if line.startswith("train")]
    assert trained == [f"train {step}: {[step] * 4}" for step in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("part", "what"),
    [("sample", "sampling for optimizer step 1"), ("sync", "the sync after explore step 1")],
)
def test_an_error_of_a_strategy_or_a_sync_method_says_what_it_broke(syncing, part, what) -> None:
    def breaks(*arguments):
        raise KeyError("no such weights")

    parts = syncing(steps=1)
    if part == "sample":
        parts.sample = breaks
    else:
        parts.sync = SimpleNamespace(sync=breaks)

    with pytest.raises(TrinityError, match=f"{what} failed: KeyError: 'no such weights' at "):
        Pipeline(parts).run()


@pytest.mark.parametrize(("trained", "is_all"), [(2, True), (3, False)])
def test_a_start_frees_the_places_that_its_weights_were_trained_on(
    fake_parts, trained, is_all
) -> None:
    parts, told = fake_parts(steps=0), []
    parts.flight = SimpleNamespace(loaded=lambda version, **how: told.append((version, how)))
    pipeline = Pipeline(parts)
    pipeline.resume(Progress(explored=trained, trained=trained, synced=trained, pulled=2))

    pipeline._free_places()

    assert told == [(2, {"is_all": is_all})]


def test_a_row_of_an_evaluation_names_the_weights_that_it_is_of(syncing) -> None:
    parts, versions = syncing(steps=4, interval=2, eval_interval=3), {}
    parts.has_evaluation = True

    def record(role, metrics, *, step):
        if role == "explorer" and "time/eval_s" in metrics:
            versions[step] = metrics["sync/model_version"]

    parts.record = record

    Pipeline(parts).run()

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
def test_a_step_is_all_since_the_last_sync(syncing, monkeypatch, settings, told) -> None:
    parts, clock, steps = syncing(steps=5, **settings), SimpleNamespace(now=0.0), []
    monkeypatch.setattr("trinity.runtime.pipeline.time.perf_counter", lambda: clock.now)
    explore_step, train_step = parts.explore_step, parts.train_step

    def explore(step):
        clock.now += 10.0
        return explore_step(step)

    def train(experiences, *, step):
        clock.now += 1.0
        return train_step(experiences, step=step)

    def record(role, metrics, *, step):
        if role == "synchronizer":
            steps.append((step, metrics["time/step_s"]))

    parts.explore_step, parts.train_step, parts.record = explore, train, record

    Pipeline(parts).run()

    assert steps == told
