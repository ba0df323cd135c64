"""What is trained while a step is explored, and that it changes nothing else."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from trinity.errors import RunFailedError, TrinityError
from trinity.runtime.loop import Interrupted

SOON_S = 20  # seconds until a test that hangs fails


@pytest.fixture
def overlapping(syncing):
    """Return counting parts whose trainer works while they explore."""

    class Overlapping(syncing):
        in_turns = False

    return Overlapping


def trained(parts) -> list[str]:
    return [line for line in parts.story if line.startswith("train")]


def driver_of(parts) -> list[str]:
    """Return what the loop's own thread did, in its order."""
    return [line for line in parts.story if not line.startswith("explore")]


def test_with_an_offset_the_last_step_is_trained_beside_the_next(overlapping, loops) -> None:
    parts = overlapping(steps=4, offset=1)
    meet = threading.Barrier(2, timeout=SOON_S)
    explore_step, train_step = parts.explore_step, parts.train_step

    def explore(step):
        if step == 2:
            meet.wait()
        return explore_step(step)

    def train(experiences, *, step):
        if step == 1:
            meet.wait()
        return train_step(experiences, step=step)

    parts.explore_step, parts.train_step = explore, train

    loops.of(parts).run()

    assert driver_of(parts) == [
        "train 1: [1, 1, 1, 1]", "sync", "train 2: [2, 2, 2, 2]", "sync",
        "train 3: [3, 3, 3, 3]", "sync", "train 4: [4, 4, 4, 4]", "sync", "save 4",
    ]  # fmt: skip


def test_with_an_interval_of_three_weights_move_after_the_third_step(overlapping, loops) -> None:
    parts = overlapping(steps=3, interval=3)

    loops.of(parts).run()

    assert driver_of(parts) == [
        "train 1: [1, 1, 1, 1]", "train 2: [2, 2, 2, 2]", "train 3: [3, 3, 3, 3]", "sync", "save 3",
    ]  # fmt: skip


@pytest.mark.parametrize("per_step", [3, 4, 5, 10])
@pytest.mark.parametrize(("interval", "offset"), [(1, 1), (1, 2), (2, 0), (2, 1), (3, 1), (2, 3)])
def test_batches_and_their_order_are_those_of_a_run_that_takes_turns(
    interval, offset, per_step, syncing, overlapping, loops
) -> None:
    settings = {"steps": 7, "interval": interval, "offset": offset, "per_step": per_step}
    alone, beside = syncing(**settings), overlapping(**settings)
    one, other = loops.of(alone), loops.of(beside)

    one.run()
    other.run()

    assert trained(alone) == trained(beside)
    assert beside.story.count("sync") == alone.story.count("sync")
    assert one.progress == other.progress


def test_a_short_batch_waits_for_the_sync(overlapping, loops) -> None:
    parts = overlapping(steps=2, offset=1, per_step=6)

    loops.of(parts).run()

    assert driver_of(parts)[:3] == ["train 1: [1, 1, 1, 1]", "train 2: [1, 1]", "sync"]


def test_without_offset_each_step_waits_for_the_weights_of_the_last(overlapping, loops) -> None:
    parts = overlapping(steps=2)

    loops.of(parts).run()

    assert parts.story[:4] == ["explore 1", "train 1: [1, 1, 1, 1]", "sync", "explore 2"]


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize(("interval", "offset"), [(1, 1), (3, 0)])
def test_a_limit_of_train_steps_ends_it_after_the_same_explore_steps(
    limit, interval, offset, syncing, overlapping, loops
) -> None:
    settings = {"steps": 9, "interval": interval, "offset": offset, "num_train_steps": limit}
    alone, beside = syncing(**settings), overlapping(**settings)
    one, other = loops.of(alone), loops.of(beside)

    one.run()
    other.run()

    assert one.progress == other.progress


def test_an_interrupt_lets_the_step_that_is_explored_end(overlapping, loops) -> None:
    parts = overlapping(steps=3, offset=1)
    train_step = parts.train_step

    def asked_while_training(experiences, *, step):
        parts.interrupt.is_requested = True
        return train_step(experiences, step=step)

    parts.train_step = asked_while_training
    loop = loops.of(parts)

    with pytest.raises(Interrupted):
        loop.run()

    assert driver_of(parts) == ["train 1: [1, 1, 1, 1]", "save 1"]
    assert [one.left for one in parts.rollouts.slots.values()] == [0, 4]
    assert (loop.progress.explore_steps, parts.rollouts.begun) == (2, 2)


def test_a_checkpoint_beside_a_step_counts_only_steps_that_have_ended(overlapping, loops) -> None:
    parts = overlapping(steps=2, offset=1, save_interval=1)
    saved = []
    parts.save = lambda progress, state: saved.append(
        (progress.explore_steps, progress.train_steps, parts.rollouts.num_rows())
    )

    loops.of(parts).run()

    for explored, trained_steps, ready in saved:
        assert 4 * explored == 4 * trained_steps + ready


def test_a_failure_of_the_trainer_is_raised_and_what_was_read_is_put_back(
    overlapping, loops
) -> None:
    parts = overlapping(steps=3, offset=1, train_fails_at=2)
    loop = loops.of(parts)

    with pytest.raises(Exception, match="the loss of a plugin broke"):
        loop.run()

    assert parts.rollouts.num_rows() == 4
    assert parts.storage.rows[:4] == [2] * 4  # before what a step beside it may have left
    assert parts.story[-1] == "save 1"


@pytest.mark.parametrize("error", [RunFailedError("too many"), TimeoutError("t")])
def test_what_the_explorer_raises_is_raised_once_the_trainer_is_done(
    overlapping, loops, error
) -> None:
    parts = overlapping(steps=4, offset=1)
    explore_step, train_step, has_failed = parts.explore_step, parts.train_step, threading.Event()

    def explore(step):
        if step == 2:
            has_failed.set()
            raise error
        return explore_step(step)

    def train(experiences, *, step):
        assert has_failed.wait(SOON_S)
        return train_step(experiences, step=step)

    parts.explore_step, parts.train_step = explore, train

    with pytest.raises(TrinityError, match=str(error)):
        loops.of(parts).run()

    assert driver_of(parts) == ["train 1: [1, 1, 1, 1]", "save 1"]


def test_a_trainer_that_fails_does_not_wait_for_the_explorer(overlapping, loops) -> None:
    parts, goes_on = overlapping(steps=4, offset=1, train_fails_at=1), threading.Event()
    explore_step = parts.explore_step

    def explore(step):
        assert step == 1 or goes_on.wait(SOON_S)
        return explore_step(step)

    parts.explore_step = explore

    with pytest.raises(TrinityError, match="the loss of a plugin broke"):
        loops.of(parts).run()
    goes_on.set()


def test_a_strategy_that_has_nothing_beside_a_step_is_asked_again_in_the_turn(
    overlapping, loops
) -> None:
    parts = overlapping(steps=4, interval=2, offset=1)
    sample, asked = parts.sample, []

    def with_a_gap(step):
        asked.append(step)
        if len(asked) == 2:
            raise StopIteration
        return sample(step)

    parts.sample = with_a_gap
    loop = loops.of(parts)

    loop.run()

    assert (loop.progress.explore_steps, loop.progress.train_steps) == (4, 4)


@pytest.mark.parametrize("kind", ["syncing", "overlapping"])
def test_a_loss_that_lets_a_stop_iteration_out_is_an_error_and_no_end(kind, request, loops) -> None:
    parts = request.getfixturevalue(kind)(steps=3, offset=1)

    def lets_it_out(experiences, *, step):
        raise StopIteration

    parts.train_step = lets_it_out

    with pytest.raises(TrinityError, match="a part of the trainer raised StopIteration"):
        loops.of(parts).run()


def test_the_last_evaluation_is_of_what_the_engines_have_and_not_of_what_is_trained(
    overlapping, loops
) -> None:
    parts = overlapping(steps=3, interval=4, eval_interval=3, num_train_steps=2)
    parts.has_evaluation = True
    explore_step = parts.explore_step

    def without_a_fourth(step):
        if step == 4:
            raise StopIteration
        return explore_step(step)

    parts.explore_step, parts.num_explore_steps = without_a_fourth, 8
    loop = loops.of(parts)

    loop.run()

    assert parts.story[-3:] == ["sync", "evaluate 3", "save 2"]
    assert loop.progress.evaluated_version == loop.progress.weights_version == 2


def test_an_evaluation_is_not_made_again_after_a_checkpoint_beside_the_next_step(
    overlapping, loops
) -> None:
    parts = overlapping(steps=2, interval=2, offset=1, eval_interval=1, save_interval=1)
    parts.has_evaluation, saved = True, []
    parts.save = lambda progress, state: saved.append(replace(progress))

    loops.of(parts).run()

    assert (saved[0].explore_steps, saved[0].train_steps) == (1, 1)
    assert saved[0].is_evaluated
