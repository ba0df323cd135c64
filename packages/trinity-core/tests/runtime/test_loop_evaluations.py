"""Evaluations where the explorer begins its steps by itself: when, of which weights, how often."""

from __future__ import annotations

import threading

import pytest
from trinity.runtime.loop import Interrupted

STYLES = ["explorer_driven", "trainer_driven"]
SOON_S = 20  # seconds until a test that hangs fails


@pytest.mark.parametrize("style", STYLES)
def test_a_run_that_is_asked_to_stop_begins_no_evaluation(style, overlapped, loops) -> None:
    parts = overlapped(steps=4, style=style, eval_interval=1)
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
def test_an_evaluation_is_of_the_newest_weights(style, overlapped, loops) -> None:
    parts = overlapped(steps=6, style=style, interval=5, eval_interval=2, max_inflight=2)
    parts.has_evaluation = True
    loop = loops.of(parts)
    behind, trained_one, train_step = [], threading.Event(), parts.train_step

    def train(experiences, *, step):
        result = train_step(experiences, step=step)
        trained_one.set()
        return result

    parts.train_step = train
    loops.before(parts, "explore_step", lambda step: step == 1 or trained_one.wait(SOON_S))
    loops.before(parts, "evaluate", lambda step: behind.append(parts.story.count("sync")))

    loop.run()

    assert behind[0] >= 1


@pytest.mark.parametrize("style", STYLES)
def test_an_evaluation_that_was_made_before_this_start_is_not_made_again(
    style, overlapped, loops
) -> None:
    parts = overlapped(steps=3, style=style, eval_interval=2)
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


def test_it_says_that_the_trainer_waits_for_an_evaluation(overlapped, monkeypatch, loops) -> None:
    monkeypatch.setattr("trinity.runtime.rollouts.PATIENCE_S", 0.0)
    monkeypatch.setattr("trinity.runtime.rollouts.LOOK_S", 0.01)
    parts = overlapped(steps=2, style="trainer_driven", eval_interval=1)
    parts.has_evaluation, told = True, threading.Event()

    def warn(text, *values):
        if "the evaluation after step 1" in text % values:
            told.set()

    def wait(step):
        assert step > 1 or told.wait(SOON_S / 10)

    monkeypatch.setattr("trinity.runtime.rollouts.logger.warning", warn)
    loops.before(parts, "evaluate", wait)

    loops.of(parts).run()


@pytest.mark.parametrize("interval", [1, 2])
def test_after_an_evaluation_the_explorer_asks_for_what_was_trained_meanwhile(
    interval, overlapped, loops
) -> None:
    """Else the weights of the evaluation would stay for a step, or an interval, too many."""
    parts = overlapped(steps=4, style="explorer_driven", interval=interval, eval_interval=2)
    parts.has_evaluation = True
    loop = loops.of(parts)
    evaluates, seen = threading.Event(), []
    is_trained, train_step = {1: threading.Event(), 2: threading.Event()}, parts.train_step

    def explore(step):
        seen.append(loop.progress.weights_version)
        assert step == 1 or is_trained[1].wait(SOON_S)

    def train(experiences, *, step):
        assert step == 1 or evaluates.wait(SOON_S)
        metrics = train_step(experiences, step=step)
        if step in is_trained:
            is_trained[step].set()
        return metrics

    def evaluation(step):
        evaluates.set()
        assert is_trained[2].wait(SOON_S)

    parts.train_step = train
    loops.before(parts, "explore_step", explore)
    loops.before(parts, "evaluate", evaluation)

    loop.run()

    assert seen[2] == 2
