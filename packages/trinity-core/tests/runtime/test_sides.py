"""What is trained while a step is explored, and that it changes nothing else."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from trinity.errors import RunFailedError, TrinityError
from trinity.runtime.pipeline import Interrupted, Pipeline
from trinity.runtime.sides import AtOnce


class Beside:
    """Lets the trainer finish its side before the explorer ends: the most that can overlap."""

    overlap = True

    def explore(self, explore, *, beside):
        beside(lambda: False)
        return explore(), 1.0


@pytest.fixture
def overlapping(syncing):
    """Return counting parts whose trainer works while they explore."""

    class Overlapping(syncing):
        sides = Beside()

    return Overlapping


def trained(parts) -> list[str]:
    return [line for line in parts.story if line.startswith("train")]


def test_with_an_offset_the_last_step_is_trained_beside_the_next(overlapping) -> None:
    parts = overlapping(steps=4, offset=1)

    Pipeline(parts).run()

    assert parts.story == [
        "explore 1",
        "train 1: [1, 1, 1, 1]", "explore 2", "sync",
        "train 2: [2, 2, 2, 2]", "explore 3", "sync",
        "train 3: [3, 3, 3, 3]", "explore 4", "sync",
        "train 4: [4, 4, 4, 4]", "sync",
        "save 4",
    ]  # fmt: skip


def test_with_an_interval_of_three_two_of_three_steps_are_trained_beside(overlapping) -> None:
    parts = overlapping(steps=3, interval=3)

    Pipeline(parts).run()

    assert parts.story == [
        "explore 1", "train 1: [1, 1, 1, 1]", "explore 2", "train 2: [2, 2, 2, 2]", "explore 3",
        "train 3: [3, 3, 3, 3]", "sync", "save 3",
    ]  # fmt: skip


@pytest.mark.parametrize("per_step", [3, 4, 5, 10])
@pytest.mark.parametrize(("interval", "offset"), [(1, 1), (1, 2), (2, 0), (2, 1), (3, 1), (2, 3)])
def test_batches_and_their_order_are_those_of_a_run_that_takes_turns(
    interval, offset, per_step, syncing, overlapping
) -> None:
    settings = {"steps": 7, "interval": interval, "offset": offset, "per_step": per_step}
    alone, beside = syncing(**settings), overlapping(**settings)
    one, other = Pipeline(alone), Pipeline(beside)

    one.run()
    other.run()

    assert trained(alone) == trained(beside)
    assert beside.story.count("sync") == alone.story.count("sync")
    assert one.progress == other.progress


def test_a_short_batch_waits_for_the_sync(overlapping) -> None:
    parts = overlapping(steps=2, offset=1, per_step=6)

    Pipeline(parts).run()

    assert parts.story[:5] == [
        "explore 1", "train 1: [1, 1, 1, 1]", "explore 2", "train 2: [1, 1]", "sync"
    ]  # fmt: skip


def test_without_offset_each_step_waits_for_the_weights_of_the_last(overlapping) -> None:
    parts = overlapping(steps=2)

    Pipeline(parts).run()

    assert parts.story[:4] == ["explore 1", "train 1: [1, 1, 1, 1]", "sync", "explore 2"]


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize(("interval", "offset"), [(1, 1), (3, 0)])
def test_a_limit_of_train_steps_ends_it_after_the_same_explore_steps(
    limit, interval, offset, syncing, overlapping
) -> None:
    settings = {"steps": 9, "interval": interval, "offset": offset, "num_train_steps": limit}
    alone, beside = syncing(**settings), overlapping(**settings)
    one, other = Pipeline(alone), Pipeline(beside)

    one.run()
    other.run()

    assert one.progress == other.progress


def test_an_interrupt_lets_the_step_that_is_explored_end(overlapping) -> None:
    parts = overlapping(steps=3, offset=1)
    train_step = parts.train_step

    def asked_while_training(experiences, *, step):
        parts.interrupt.is_requested = True
        return train_step(experiences, step=step)

    parts.train_step = asked_while_training
    pipeline = Pipeline(parts)

    with pytest.raises(Interrupted):
        pipeline.run()

    assert parts.story == ["explore 1", "train 1: [1, 1, 1, 1]", "explore 2", "save 1"]
    assert pipeline.progress.written == [0, 4]
    assert pipeline.progress.num_waiting == 4


def test_a_checkpoint_beside_a_step_counts_only_steps_that_have_ended(overlapping) -> None:
    parts = overlapping(steps=2, offset=1, save_interval=1)
    saved = []
    parts.save = lambda progress, state: saved.append(
        (progress.explored, progress.trained, progress.pulled, progress.num_waiting)
    )

    Pipeline(parts).run()

    assert saved[0] == (1, 1, 0, 0)


def test_a_failure_of_the_trainer_is_raised_and_what_was_read_is_put_back(overlapping) -> None:
    parts = overlapping(steps=3, offset=1, train_fails_at=2)
    pipeline = Pipeline(parts)

    with pytest.raises(Exception, match="the loss of a plugin broke"):
        pipeline.run()

    assert pipeline.progress.num_waiting == len(parts.storage.rows) == 4
    assert parts.story[-1] == "save 1"


def test_both_work_at_the_same_time() -> None:
    meet = threading.Barrier(2, timeout=20)

    def explore():
        meet.wait()
        return "explored"

    result, seconds = AtOnce().explore(explore, beside=lambda is_over: meet.wait())

    assert result == "explored"
    assert seconds >= 0


def test_the_trainer_hears_that_the_step_has_ended() -> None:
    heard = threading.Event()

    def beside(is_over) -> None:
        while not is_over():
            pass
        heard.set()

    AtOnce().explore(SimpleNamespace, beside=beside)

    assert heard.is_set()


@pytest.mark.parametrize("error", [RunFailedError("too many"), StopIteration(), TimeoutError("t")])
def test_what_the_explorer_raises_is_raised_once_the_trainer_is_done(error) -> None:
    done = []

    def explore():
        raise error

    with pytest.raises(type(error)):
        AtOnce().explore(explore, beside=lambda is_over: done.append(True))

    assert done == [True]


def test_a_trainer_that_fails_does_not_wait_for_the_explorer() -> None:
    goes_on = threading.Event()

    def fail(is_over) -> None:
        raise ValueError("the loss broke")

    with pytest.raises(ValueError, match="the loss broke"):
        AtOnce().explore(goes_on.wait, beside=fail)
    goes_on.set()


def test_a_strategy_that_has_nothing_beside_a_step_is_asked_again_in_the_turn(overlapping) -> None:
    parts = overlapping(steps=4, interval=2, offset=1)
    sample, asked = parts.sample, []

    def with_a_gap(step):
        asked.append(step)
        if len(asked) == 2:
            raise StopIteration
        return sample(step)

    parts.sample = with_a_gap
    pipeline = Pipeline(parts)

    pipeline.run()

    assert (pipeline.progress.explored, pipeline.progress.trained) == (4, 4)


@pytest.mark.parametrize("kind", ["syncing", "overlapping"])
def test_a_loss_that_lets_a_stop_iteration_out_is_an_error_and_no_end(kind, request) -> None:
    parts = request.getfixturevalue(kind)(steps=3, offset=1)

    def lets_it_out(experiences, *, step):
        raise StopIteration

    parts.train_step = lets_it_out

    with pytest.raises(TrinityError, match="a part of the trainer raised StopIteration"):
        Pipeline(parts).run()


def test_the_last_evaluation_is_of_what_the_engines_have_and_not_of_what_is_trained(
    overlapping,
) -> None:
    parts = overlapping(steps=3, interval=4, eval_interval=3, num_train_steps=2)
    parts.has_evaluation = True
    explore_step = parts.explore_step

    def without_a_fourth(step):
        if step == 4:
            raise StopIteration
        return explore_step(step)

    parts.explore_step, parts.num_explore_steps = without_a_fourth, 8
    pipeline = Pipeline(parts)

    pipeline.run()

    assert parts.story[-3:] == ["sync", "evaluate 3", "save 2"]
    assert pipeline.progress.evaluated_trained == pipeline.progress.pulled == 2


def test_an_evaluation_is_not_made_again_after_a_checkpoint_beside_the_next_step(
    overlapping,
) -> None:
    parts = overlapping(steps=2, interval=2, offset=1, eval_interval=1, save_interval=1)
    parts.has_evaluation, saved = True, []
    parts.save = lambda progress, state: saved.append(progress.copy())

    Pipeline(parts).run()

    assert (saved[0].explored, saved[0].trained) == (1, 1)
    assert saved[0].is_evaluated
