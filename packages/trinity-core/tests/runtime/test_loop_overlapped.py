"""An explorer that begins its steps by itself: what is trained, when weights change, the end."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from trinity.errors import RunFailedError, TrinityError
from trinity.runtime.loop import Interrupted
from trinity.runtime.rollouts import Rollouts

STYLES = ["explorer_driven", "trainer_driven"]
SOON_S = 20  # seconds until a test that hangs fails


@pytest.fixture
def ahead(syncing):
    """Return counting parts whose rollout steps begin by themselves, in a thread."""

    class Ahead(syncing):
        in_turns = False

    return Ahead


def trained(parts) -> list[str]:
    return [line.partition(": ")[2] for line in parts.story if line.startswith("train")]


def batches(*, steps: int, per_step: int, size: int) -> list[str]:
    rows = [step for step in range(1, steps + 1) for _ in range(per_step)]
    return [str(rows[n : n + size]) for n in range(0, len(rows), size)]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("per_step", "size"), [(4, 4), (3, 4), (10, 4), (4, 10), (1, 7)])
@pytest.mark.parametrize(("interval", "max_inflight"), [(1, 1), (1, 2), (3, 2), (2, 4)])
def test_all_that_is_explored_is_trained_once_the_oldest_whole_batch_first(
    style, per_step, size, interval, max_inflight, ahead, loops
) -> None:
    parts = ahead(
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
def test_the_next_step_is_explored_while_the_last_is_trained(style, ahead, loops) -> None:
    parts = ahead(steps=3, style=style)
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

    assert len(trained(parts)) == 3


def test_weights_of_a_trainer_that_decides_come_during_a_step(ahead, loops) -> None:
    parts = ahead(steps=2, style="trainer_driven")
    came = threading.Event()
    explore_step = parts.explore_step

    def explore(step):
        assert step == 1 or came.wait(SOON_S)
        return explore_step(step)

    def sync(snapshot):
        came.set()
        parts.story.append("sync")
        return 1

    parts.explore_step, parts.sync.sync = explore, sync

    loops.of(parts).run()

    assert parts.story[:4] == ["explore 1", "train 1: [1, 1, 1, 1]", "sync", "explore 2"]


def test_weights_of_an_explorer_that_decides_change_between_its_steps(ahead, loops) -> None:
    parts = ahead(steps=6, style="explorer_driven")
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


@pytest.mark.parametrize("style", STYLES)
def test_an_evaluation_keeps_its_weights_while_training_goes_on(style, ahead, loops) -> None:
    parts = ahead(steps=3, style=style, eval_interval=2, max_inflight=3)
    parts.has_evaluation, trained_twice = True, threading.Event()
    train_step, evaluate = parts.train_step, parts.evaluate

    def train(experiences, *, step):
        if step == 2:
            trained_twice.set()
        return train_step(experiences, step=step)

    def evaluation(step):
        parts.story.append("asked")
        assert trained_twice.wait(SOON_S)
        return evaluate(step)

    parts.train_step, parts.evaluate = train, evaluation

    loops.of(parts).run()

    first, last = parts.story.index("asked"), parts.story.index("evaluate 2")
    assert "sync" not in parts.story[first:last]
    assert "train 2: [2, 2, 2, 2]" in parts.story[: last + 2]
    assert parts.story.count("evaluate 2") == parts.story.count("evaluate 3") == 1


@pytest.mark.parametrize("style", STYLES)
def test_a_checkpoint_counts_only_steps_that_have_ended_and_where_they_left_the_explorer(
    style, ahead, loops
) -> None:
    parts = ahead(steps=4, style=style, save_interval=1)
    asked, saved = [], []
    explore_step = parts.explore_step

    def explore(step):
        asked.append(step)
        return explore_step(step)

    parts.explore_step = explore
    parts.explorer_state = lambda: {"after": len(asked)}
    parts.save = lambda progress, state: saved.append((replace(progress), state))

    loops.of(parts).run()

    assert len(saved) >= 4
    for progress, state in saved:
        if progress.explore_steps:
            assert state["after"] == progress.explore_steps
        ready = sum(left for _, name, _, left, _ in state["rollouts"]["slots"] if name == "ready")
        assert 4 * progress.explore_steps == 4 * progress.train_steps + ready


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("per_step", [3, 4, 10])
def test_a_run_that_is_stopped_again_and_again_trains_all_of_it_once(
    style, per_step, ahead, loops
) -> None:
    parts = ahead(steps=7, per_step=per_step, style=style)
    loop = loops.of(parts)
    num_stops = 0
    while True:
        parts.interrupt.is_requested = num_stops % 2 == 0
        train_step = type(parts).train_step.__get__(parts)

        def stopping(experiences, *, step, train_step=train_step):
            parts.interrupt.is_requested = True
            return train_step(experiences, step=step)

        parts.train_step = stopping
        try:
            loop.run()
        except Interrupted:
            num_stops += 1
            loop = loops.resumed(loop)
            continue
        break

    assert num_stops > 2
    assert trained(parts) == batches(steps=7, per_step=per_step, size=4)


@pytest.mark.parametrize("style", STYLES)
def test_a_limit_of_optimizer_steps_ends_the_run_with_few_steps_more_than_it_needs(
    style, ahead, loops
) -> None:
    parts = ahead(steps=20, style=style, num_train_steps=3, max_inflight=4)
    loop = loops.of(parts)

    loop.run()

    assert (loop.progress.train_steps, loop.progress.explore_steps) == (3, 3)


@pytest.mark.parametrize("style", STYLES)
def test_tasks_that_end_early_end_the_run(style, ahead, loops) -> None:
    parts = ahead(steps=9, style=style)
    explore_step = parts.explore_step

    def explore(step):
        if step > 4:
            raise StopIteration
        return explore_step(step)

    parts.explore_step = explore

    loops.of(parts).run()

    assert trained(parts) == batches(steps=4, per_step=4, size=4)
    assert parts.num_explore_steps == 4


@pytest.mark.parametrize("style", STYLES)
def test_a_step_that_fails_ends_the_run_and_what_was_trained_is_saved(style, ahead, loops) -> None:
    parts = ahead(steps=9, style=style, fails_at=4)

    with pytest.raises(RunFailedError, match="too many runs failed"):
        loops.of(parts).run()

    assert parts.story[-1].startswith("save")


@pytest.mark.parametrize("style", STYLES)
def test_a_trainer_that_fails_does_not_wait_for_the_step_on_its_way(style, ahead, loops) -> None:
    parts = ahead(steps=9, style=style, train_fails_at=2)
    goes_on, explore_step = threading.Event(), parts.explore_step

    def explore(step):
        assert step < 3 or goes_on.wait(SOON_S)
        return explore_step(step)

    parts.explore_step = explore

    with pytest.raises(TrinityError, match="the loss of a plugin broke"):
        loops.of(parts).run()
    goes_on.set()

    assert parts.story[-1] == "save 1"


def test_what_a_run_in_turns_left_due_is_trained_first(ahead, loops) -> None:
    parts = ahead(steps=3, style="trainer_driven", train_batch=6)
    loop = loops.of(parts)
    parts.storage.rows = [1] * 4
    parts.rollouts.begin()
    parts.rollouts.finish(1, 4)
    loop.progress.explore_steps = 1
    loop = loops.resumed(loop)

    loop.run()

    assert trained(parts) == batches(steps=3, per_step=4, size=6)


def test_it_says_which_step_the_trainer_waits_for(ahead, caplog, monkeypatch, loops) -> None:
    monkeypatch.setattr("trinity.runtime.rollouts.PATIENCE_S", 0.0)
    monkeypatch.setattr("trinity.runtime.rollouts.LOOK_S", 0.01)
    parts = ahead(steps=1, style="trainer_driven")
    said, explore_step = threading.Event(), parts.explore_step
    monkeypatch.setattr("trinity.runtime.rollouts.logger.warning", lambda *args: said.set())

    def explore(step):
        assert said.wait(SOON_S)
        return explore_step(step)

    parts.explore_step = explore

    loops.of(parts).run()


def test_a_step_that_ends_after_its_attempt_asks_no_files_how_they_are(ahead) -> None:
    parts = ahead(steps=1, style="trainer_driven")
    begins, goes_on, asked = threading.Event(), threading.Event(), []
    explore_step = parts.explore_step

    def explore(step):
        begins.set()
        assert goes_on.wait(SOON_S)
        return explore_step(step)

    parts.explore_step, parts.explorer_state = explore, lambda: asked.append(1)
    with Rollouts(parts) as rollouts:
        rollouts.let(1)
        assert begins.wait(SOON_S)
    goes_on.set()
    rollouts.wait(0)

    assert len(rollouts.ended()) == 1
    assert not asked


@pytest.mark.parametrize("style", STYLES)
def test_the_last_checkpoint_is_written_once(style, ahead, loops) -> None:
    parts = ahead(steps=9, style=style, save_interval=1, num_train_steps=3)

    loops.of(parts).run()

    assert parts.story.count("save 3") == 1
    assert parts.story[-1] == "note 3"


@pytest.mark.parametrize("style", STYLES)
def test_what_is_trained_beside_a_step_is_told_with_the_step(style, ahead, loops) -> None:
    parts, rows = ahead(steps=4, style=style), []
    parts.record = lambda role, metrics, *, step: rows.append((role, step, metrics))
    train_step = parts.train_step

    def train(experiences, *, step):
        time.sleep(0.02)
        return train_step(experiences, step=step)

    parts.train_step = train

    loops.of(parts).run()

    beside = [row["time/trained_beside_s"] for role, _, row in rows if role == "explorer"]
    steps = [row["time/step_s"] for role, _, row in rows if role == "synchronizer"]
    assert len(beside) == 4
    assert all(0.0 <= seconds < 0.02 * 4 + SOON_S for seconds in beside)
    assert sum(steps) >= 0.02 * 4  # no optimizer step is in none of them


def test_seconds_beside_two_steps_are_told_with_each_of_them(ahead, loops) -> None:
    observers = loops.of(ahead(steps=1, style=STYLES[0]))._observers
    observers._trained_at.extend([(0.0, 2.0), (3.0, 5.0), (6.0, 9.0)])

    assert observers._trained_beside(1.0, 4.0) == 1.0 + 1.0
    assert observers._trained_beside(4.0, 7.0) == 1.0 + 1.0
    assert observers._trained_beside(7.0, 7.5) == 0.5
