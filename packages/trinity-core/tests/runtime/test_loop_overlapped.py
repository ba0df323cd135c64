"""An explorer that begins its steps by itself: what is trained, when weights change, the end."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from trinity.errors import RunFailedError, TrinityError
from trinity.runtime.rollouts import Rollouts

DRIVEN = ["explorer_driven", "trainer_driven"]
STYLES = ["fixed", *DRIVEN]
SOON_S = 20  # seconds until a test that hangs fails


def trained(parts) -> list[str]:
    return [line.partition(": ")[2] for line in parts.story if line.startswith("train")]


def batches(*, steps: int, per_step: int, size: int) -> list[str]:
    rows = [step for step in range(1, steps + 1) for _ in range(per_step)]
    return [str(rows[n : n + size]) for n in range(0, len(rows), size)]


@pytest.mark.parametrize("style", DRIVEN)
@pytest.mark.parametrize(("per_step", "size"), [(4, 4), (3, 4), (10, 4), (4, 10), (1, 7)])
@pytest.mark.parametrize(("interval", "max_inflight"), [(1, 1), (1, 2), (3, 2), (2, 4)])
def test_all_that_is_explored_is_trained_once_the_oldest_whole_batch_first(
    style, per_step, size, interval, max_inflight, overlapped, loops
) -> None:
    parts = overlapped(
        steps=9, per_step=per_step, train_batch=size, interval=interval, style=style,
        max_inflight=max_inflight,
    )  # fmt: skip
    loop = loops.of(parts)

    loop.run()

    assert trained(parts) == batches(steps=9, per_step=per_step, size=size)
    assert (loop.progress.explore_steps, parts.rollouts.num_rows()) == (9, 0)
    assert loop.progress.weights_version == loop.progress.train_steps
    assert parts.story[-2:] == ["sync", f"save {loop.progress.train_steps}"]


@pytest.mark.parametrize("style", STYLES)
def test_the_next_step_is_explored_while_the_last_is_trained(style, overlapped, loops) -> None:
    parts = overlapped(steps=3, style=style, offset=int(style == "fixed"))
    meet = threading.Barrier(2, timeout=SOON_S)
    loops.before(parts, "explore_step", lambda step: step == 2 and meet.wait())
    loops.before(parts, "train_step", lambda step: step == 1 and meet.wait())

    loops.of(parts).run()

    assert len(trained(parts)) == 3


def test_weights_of_a_trainer_that_decides_come_during_a_step(overlapped, loops) -> None:
    parts, came = overlapped(steps=2, style="trainer_driven"), threading.Event()
    loops.before(parts, "explore_step", lambda step: step == 1 or came.wait(SOON_S))
    loops.before(parts.sync, "sync", lambda snapshot: came.set())

    loops.of(parts).run()

    assert parts.story[:4] == ["explore 1", "train 1: [1, 1, 1, 1]", "sync", "explore 2"]


def test_weights_of_an_explorer_that_decides_change_between_its_steps(overlapped, loops) -> None:
    parts = overlapped(steps=6, style="explorer_driven")
    is_exploring, seen = threading.Event(), []
    explore_step = parts.explore_step

    def explore(step):
        is_exploring.set()
        result = explore_step(step)
        is_exploring.clear()
        return result

    parts.explore_step = explore
    parts.sync.sync = lambda snapshot: seen.append(is_exploring.is_set()) or 0

    loops.of(parts).run()

    assert len(seen) >= 3
    assert not any(seen)


@pytest.mark.parametrize("style", DRIVEN)
def test_an_evaluation_keeps_its_weights_while_training_goes_on(style, overlapped, loops) -> None:
    parts = overlapped(steps=3, style=style, eval_interval=2, max_inflight=3)
    parts.has_evaluation, trained_twice = True, threading.Event()
    loops.before(parts, "train_step", lambda step: step == 2 and trained_twice.set())

    def wait(step):
        parts.story.append("asked")
        assert trained_twice.wait(SOON_S)

    loops.before(parts, "evaluate", wait)

    loops.of(parts).run()

    first, last = parts.story.index("asked"), parts.story.index("evaluate 2")
    assert "sync" not in parts.story[first:last]
    assert "train 2: [2, 2, 2, 2]" in parts.story[: last + 2]
    assert parts.story.count("evaluate 2") == parts.story.count("evaluate 3") == 1


@pytest.mark.parametrize("style", STYLES)
def test_a_checkpoint_counts_only_steps_that_have_ended_and_where_they_left_the_explorer(
    style, overlapped, loops
) -> None:
    parts = overlapped(steps=4, style=style, offset=int(style == "fixed"), save_interval=1)
    asked, saved = [], []
    loops.before(parts, "explore_step", asked.append)
    parts.state_dict = lambda: {"files": {}, "after": len(asked)}
    parts.save = lambda progress, state: saved.append((replace(progress), state))

    loops.of(parts).run()

    assert len(saved) >= 4
    for progress, state in saved:
        if progress.explore_steps:
            assert state["after"] == progress.explore_steps
        ready = sum(left for _, name, _, left, _ in state["rollouts"]["slots"] if name == "ready")
        assert 4 * progress.explore_steps == 4 * progress.train_steps + ready


@pytest.mark.parametrize("style", DRIVEN)
def test_a_limit_of_optimizer_steps_ends_the_run_with_few_steps_more_than_it_needs(
    style, overlapped, loops
) -> None:
    parts = overlapped(steps=20, style=style, num_train_steps=3, max_inflight=4)
    loop = loops.of(parts)

    loop.run()

    assert (loop.progress.train_steps, loop.progress.explore_steps) == (3, 3)


@pytest.mark.parametrize("style", DRIVEN)
def test_a_step_that_fails_ends_the_run_and_what_was_trained_is_saved(
    style, overlapped, loops
) -> None:
    parts = overlapped(steps=9, style=style, fails_at=4)

    with pytest.raises(RunFailedError, match="too many runs failed"):
        loops.of(parts).run()

    assert parts.story[-1].startswith("save")


@pytest.mark.parametrize("style", STYLES)
def test_a_trainer_that_fails_does_not_wait_for_the_step_on_its_way(
    style, overlapped, loops
) -> None:
    offset, goes_on = int(style == "fixed"), threading.Event()
    parts = overlapped(steps=9, style=style, offset=offset, train_fails_at=2)
    loops.before(parts, "explore_step", lambda step: step < 3 or goes_on.wait(SOON_S))

    with pytest.raises(TrinityError, match="the loss of a plugin broke"):
        loops.of(parts).run()
    goes_on.set()

    assert parts.story[-1] == "save 1"


def test_what_a_run_in_turns_left_due_is_trained_first(overlapped, loops) -> None:
    parts = overlapped(steps=3, style="trainer_driven", train_batch=6)
    loop = loops.of(parts)
    parts.storage.rows = [1] * 4
    parts.rollouts.begin()
    parts.rollouts.finish(1, 4)
    loop.progress.explore_steps = 1
    loop = loops.resumed(loop)

    loop.run()

    assert trained(parts) == batches(steps=3, per_step=4, size=6)


def test_it_says_which_step_the_trainer_waits_for(overlapped, monkeypatch, loops) -> None:
    monkeypatch.setattr("trinity.runtime.rollouts.PATIENCE_S", 0.0)
    monkeypatch.setattr("trinity.runtime.rollouts.LOOK_S", 0.01)
    parts, said = overlapped(steps=1, style="trainer_driven"), threading.Event()
    monkeypatch.setattr("trinity.runtime.rollouts.logger.warning", lambda *args: said.set())
    loops.before(parts, "explore_step", lambda step: said.wait(SOON_S))

    loops.of(parts).run()


def test_a_step_that_ends_after_its_attempt_asks_no_files_how_they_are(overlapped, loops) -> None:
    parts = overlapped(steps=1, style="trainer_driven")
    begins, goes_on, asked = threading.Event(), threading.Event(), []
    loops.before(parts, "explore_step", lambda step: goes_on.wait(SOON_S))
    loops.before(parts, "explore_step", lambda step: begins.set())
    parts.state_dict = lambda: asked.append(1)
    with Rollouts(parts) as rollouts:
        rollouts.let(1)
        assert begins.wait(SOON_S)
    goes_on.set()
    rollouts.wait(0)

    assert len(rollouts.ended()) == 1
    assert not asked


@pytest.mark.parametrize("style", DRIVEN)
def test_the_last_checkpoint_is_written_once(style, overlapped, loops) -> None:
    parts = overlapped(steps=9, style=style, save_interval=1, num_train_steps=3)

    loops.of(parts).run()

    assert parts.story.count("save 3") == 1
    assert parts.story[-1] == "note 3"


@pytest.mark.parametrize("style", DRIVEN)
def test_what_is_trained_beside_a_step_is_told_with_the_step(style, overlapped, loops) -> None:
    parts, rows = overlapped(steps=4, style=style), []
    loops.observe(parts, lambda role, metrics, *, step: rows.append((role, step, metrics)))
    loops.before(parts, "train_step", lambda step: time.sleep(0.02))

    loops.of(parts).run()

    beside = [row["time/trained_beside_s"] for role, _, row in rows if role == "explorer"]
    steps = [row["time/step_s"] for role, _, row in rows if role == "synchronizer"]
    assert len(beside) == 4
    assert all(0.0 <= seconds < 0.02 * 4 + SOON_S for seconds in beside)
    assert sum(steps) >= 0.02 * 4  # no optimizer step is in none of them


def test_seconds_beside_two_steps_are_told_with_each_of_them(overlapped, loops) -> None:
    observers = loops.of(overlapped(steps=1, style="explorer_driven"))._observers
    observers._trained_at.extend([(0.0, 2.0), (3.0, 5.0), (6.0, 9.0)])

    assert observers._trained_beside(1.0, 4.0) == 1.0 + 1.0
    assert observers._trained_beside(4.0, 7.0) == 1.0 + 1.0
    assert observers._trained_beside(7.0, 7.5) == 0.5
