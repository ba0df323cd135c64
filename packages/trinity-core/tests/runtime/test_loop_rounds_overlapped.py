"""What is trained while a step is explored, and that it changes nothing else."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from trinity.errors import RunFailedError, TrinityError
from trinity.runtime.loop import Interrupted

SOON_S = 20  # seconds until a test that hangs fails


def trained(parts) -> list[str]:
    return [line for line in parts.story if line.startswith("train")]


def driver_of(parts) -> list[str]:
    """Return what the loop's own thread did, in its order."""
    return [line for line in parts.story if not line.startswith("explore")]


@pytest.mark.parametrize("per_step", [3, 4, 5, 10])
@pytest.mark.parametrize(("interval", "offset"), [(1, 1), (1, 2), (2, 0), (2, 1), (3, 1), (2, 3)])
def test_batches_and_their_order_are_those_of_a_run_that_takes_turns(
    interval, offset, per_step, syncing, overlapped, loops
) -> None:
    settings = {"steps": 7, "interval": interval, "offset": offset, "per_step": per_step}
    alone, beside = syncing(**settings), overlapped(**settings)
    one, other = loops.of(alone), loops.of(beside)

    one.run()
    other.run()

    assert trained(alone) == trained(beside)
    assert beside.story.count("sync") == alone.story.count("sync")
    assert one.progress == other.progress


def test_without_offset_each_step_waits_for_the_weights_of_the_last(overlapped, loops) -> None:
    parts = overlapped(steps=2)

    loops.of(parts).run()

    assert parts.story[:4] == ["explore 1", "train 1: [1, 1, 1, 1]", "sync", "explore 2"]


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize(("interval", "offset"), [(1, 1), (3, 0)])
def test_a_limit_of_train_steps_ends_it_after_the_same_explore_steps(
    limit, interval, offset, syncing, overlapped, loops
) -> None:
    settings = {"steps": 9, "interval": interval, "offset": offset, "num_train_steps": limit}
    alone, beside = syncing(**settings), overlapped(**settings)
    one, other = loops.of(alone), loops.of(beside)

    one.run()
    other.run()

    assert one.progress == other.progress


def test_an_interrupt_lets_the_step_that_is_explored_end(overlapped, loops) -> None:
    parts = overlapped(steps=3, offset=1)
    loops.before(parts, "train_step", lambda _: setattr(parts.interrupt, "is_requested", True))
    loop = loops.of(parts)

    with pytest.raises(Interrupted):
        loop.run()

    assert driver_of(parts) == ["train 1: [1, 1, 1, 1]", "save 1"]
    assert [one.left for one in parts.rollouts.slots.values()] == [0, 4]
    assert (loop.progress.explore_steps, parts.rollouts.begun) == (2, 2)


def test_a_failure_of_the_trainer_is_raised_and_what_was_read_is_put_back(
    overlapped, loops
) -> None:
    parts = overlapped(steps=3, offset=1, train_fails_at=2)
    loop = loops.of(parts)

    with pytest.raises(Exception, match="the loss of a plugin broke"):
        loop.run()

    assert parts.rollouts.num_rows() == 4
    assert parts.storage.rows[:4] == [2] * 4  # before what a step beside it may have left
    assert parts.story[-1] == "save 1"


@pytest.mark.parametrize("error", [RunFailedError("too many"), TimeoutError("t")])
def test_what_the_explorer_raises_is_raised_once_the_trainer_is_done(
    overlapped, loops, error
) -> None:
    parts, has_failed = overlapped(steps=4, offset=1), threading.Event()

    def fails_in_the_second(step):
        if step == 2:
            has_failed.set()
            raise error

    loops.before(parts, "explore_step", fails_in_the_second)
    loops.before(parts, "train_step", lambda step: has_failed.wait(SOON_S))

    with pytest.raises(TrinityError, match=str(error)):
        loops.of(parts).run()

    assert driver_of(parts) == ["train 1: [1, 1, 1, 1]", "save 1"]


def test_a_strategy_that_has_nothing_beside_a_step_is_asked_again_in_the_turn(
    overlapped, loops
) -> None:
    parts = overlapped(steps=4, interval=2, offset=1)
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


@pytest.mark.parametrize("in_turns", [True, False])
def test_a_loss_that_lets_a_stop_iteration_out_is_an_error_and_no_end(
    in_turns, syncing, loops
) -> None:
    parts = syncing(steps=3, offset=1, in_turns=in_turns)

    def lets_it_out(experiences, *, step):
        raise StopIteration

    parts.train_step = lets_it_out

    with pytest.raises(TrinityError, match="optimizer step 1 failed: StopIteration"):
        loops.of(parts).run()


def test_the_last_evaluation_is_of_what_the_engines_have_and_not_of_what_is_trained(
    overlapped, loops
) -> None:
    parts = overlapped(steps=3, interval=4, eval_interval=3, num_train_steps=2)
    parts.has_evaluation, parts.num_explore_steps = True, 8

    def no_fourth(step):
        if step == 4:
            raise StopIteration

    loops.before(parts, "explore_step", no_fourth)
    loop = loops.of(parts)

    loop.run()

    assert parts.story[-3:] == ["sync", "evaluate 3", "save 2"]
    assert loop.progress.evaluated_version == loop.progress.weights_version == 2


def test_an_evaluation_is_not_made_again_after_a_checkpoint_beside_the_next_step(
    overlapped, loops
) -> None:
    parts = overlapped(steps=2, interval=2, offset=1, eval_interval=1, save_interval=1)
    parts.has_evaluation, saved = True, []
    parts.save = lambda progress, state: saved.append(replace(progress))

    loops.of(parts).run()

    assert (saved[0].explore_steps, saved[0].train_steps) == (1, 1)
    assert saved[0].is_evaluated
