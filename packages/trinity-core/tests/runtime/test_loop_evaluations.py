"""Evaluations where the explorer begins its steps by itself: when, of which weights, how often."""

from __future__ import annotations

import threading

import pytest
from trinity.runtime.loop import Interrupted

STYLES = ["explorer_driven", "trainer_driven"]
SOON_S = 20  # seconds until a test that hangs fails


@pytest.fixture
def ahead(syncing):
    """Return counting parts whose rollout steps begin by themselves, in a thread."""

    class Ahead(syncing):
        in_turns = False

    return Ahead


@pytest.mark.parametrize("style", STYLES)
def test_a_run_that_is_asked_to_stop_begins_no_evaluation(style, ahead, loops) -> None:
    parts = ahead(steps=4, style=style, eval_interval=1)
    parts.has_evaluation = True
    explore_step = parts.explore_step

    def explore(step):
        parts.interrupt.is_requested = True
        return explore_step(step)

    parts.explore_step = explore
    loop = loops.of(parts)
    with pytest.raises(Interrupted):
        loop.run()
    assert "evaluate 1" not in parts.story
    parts.interrupt.is_requested = False
    parts.explore_step = explore_step
    again = loops.resumed(loop)

    again.run()

    assert [line for line in parts.story if line.startswith("evaluate")] == [
        f"evaluate {step}" for step in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize("style", STYLES)
def test_an_evaluation_is_of_the_newest_weights(style, ahead, loops) -> None:
    parts = ahead(steps=6, style=style, interval=5, eval_interval=2, max_inflight=2)
    parts.has_evaluation = True
    loop = loops.of(parts)
    evaluate, behind = parts.evaluate, []

    def evaluation(step):
        behind.append(parts.story.count("sync"))
        return evaluate(step)

    explore_step, trained_one = parts.explore_step, threading.Event()
    train_step = parts.train_step

    def train(experiences, *, step):
        result = train_step(experiences, step=step)
        trained_one.set()
        return result

    def explore(step):
        assert step == 1 or trained_one.wait(SOON_S)
        return explore_step(step)

    parts.explore_step, parts.train_step, parts.evaluate = explore, train, evaluation

    loop.run()

    assert behind[0] >= 1


@pytest.mark.parametrize("style", STYLES)
def test_an_evaluation_that_was_made_before_this_start_is_not_made_again(
    style, ahead, loops
) -> None:
    parts = ahead(steps=3, style=style, eval_interval=2)
    parts.has_evaluation = True
    loop = loops.of(parts)
    progress = loop.progress
    progress.explore_steps = progress.evaluated_step = parts.rollouts.begun = 2
    progress.train_steps = 2
    progress.evaluated_version = 1
    loop = loops.resumed(loop)

    loop.run()

    assert "evaluate 2" not in parts.story
    assert "evaluate 3" in parts.story


def test_it_says_that_the_trainer_waits_for_an_evaluation(ahead, monkeypatch, loops) -> None:
    monkeypatch.setattr("trinity.runtime.rollouts.PATIENCE_S", 0.0)
    monkeypatch.setattr("trinity.runtime.rollouts.LOOK_S", 0.01)
    parts = ahead(steps=2, style="trainer_driven", eval_interval=1)
    parts.has_evaluation, told, evaluate = True, threading.Event(), parts.evaluate

    def warn(text, *values):
        if "the evaluation after step 1" in text % values:
            told.set()

    def evaluation(step):
        assert told.wait(SOON_S / 10)
        return evaluate(step)

    monkeypatch.setattr("trinity.runtime.rollouts.logger.warning", warn)
    parts.evaluate = lambda step: evaluation(step) if step == 1 else evaluate(step)

    loops.of(parts).run()


@pytest.mark.parametrize("interval", [1, 2])
def test_after_an_evaluation_the_explorer_asks_for_what_was_trained_meanwhile(
    interval, ahead, loops
) -> None:
    """Else the weights of the evaluation would stay for a step, or an interval, too many."""
    parts = ahead(steps=4, style="explorer_driven", interval=interval, eval_interval=2)
    parts.has_evaluation = True
    loop = loops.of(parts)
    evaluates, seen = threading.Event(), []
    is_trained = {1: threading.Event(), 2: threading.Event()}
    explore_step, train_step, evaluate = parts.explore_step, parts.train_step, parts.evaluate

    def explore(step):
        seen.append(loop.progress.weights_version)
        assert step == 1 or is_trained[1].wait(SOON_S)
        return explore_step(step)

    def train(experiences, *, step):
        assert step == 1 or evaluates.wait(SOON_S)
        metrics = train_step(experiences, step=step)
        if step in is_trained:
            is_trained[step].set()
        return metrics

    def evaluation(step):
        evaluates.set()
        assert is_trained[2].wait(SOON_S)
        return evaluate(step)

    parts.explore_step, parts.train_step, parts.evaluate = explore, train, evaluation

    loop.run()

    assert seen[2] == 2
