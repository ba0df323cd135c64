"""An explorer that begins its steps by itself: what is trained, when weights change, the end."""

from __future__ import annotations

import threading
import time

import pytest
from trinity.errors import RunFailedError, TrinityError
from trinity.runtime.explorer_side import ExplorerSide
from trinity.runtime.lead import lead_of
from trinity.runtime.pipeline import Interrupted
from trinity.runtime.pipeline_ahead import PipelineAhead

STYLES = ["explorer_driven", "trainer_driven"]
SOON_S = 20  # seconds until a test that hangs fails


def pipeline_of(parts) -> PipelineAhead:
    return PipelineAhead(parts, lead_of(parts.config))


def trained(parts) -> list[str]:
    return [line.partition(": ")[2] for line in parts.story if line.startswith("train")]


def batches(*, steps: int, per_step: int, size: int) -> list[str]:
    rows = [step for step in range(1, steps + 1) for _ in range(per_step)]
    return [str(rows[n : n + size]) for n in range(0, len(rows), size)]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("per_step", "size"), [(4, 4), (3, 4), (10, 4), (4, 10), (1, 7)])
@pytest.mark.parametrize(("interval", "max_inflight"), [(1, 1), (1, 2), (3, 2), (2, 4)])
def test_all_that_is_explored_is_trained_once_the_oldest_whole_batch_first(
    style, per_step, size, interval, max_inflight, syncing
) -> None:
    parts = syncing(
        steps=9, per_step=per_step, train_batch=size, interval=interval, style=style,
        max_inflight=max_inflight,
    )  # fmt: skip
    pipeline = pipeline_of(parts)

    pipeline.run()

    assert trained(parts) == batches(steps=9, per_step=per_step, size=size)
    assert (pipeline.progress.explored, pipeline.progress.num_waiting) == (9, 0)
    assert pipeline.progress.pulled == pipeline.progress.trained
    assert parts.story[-2:] == ["sync", f"save {pipeline.progress.trained}"]


@pytest.mark.parametrize("style", STYLES)
def test_the_next_step_is_explored_while_the_last_is_trained(style, syncing) -> None:
    parts = syncing(steps=3, style=style)
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

    pipeline_of(parts).run()

    assert len(trained(parts)) == 3


def test_weights_of_a_trainer_that_decides_come_during_a_step(syncing) -> None:
    parts = syncing(steps=2, style="trainer_driven")
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

    pipeline_of(parts).run()

    assert parts.story[:4] == ["explore 1", "train 1: [1, 1, 1, 1]", "sync", "explore 2"]


def test_weights_of_an_explorer_that_decides_change_between_its_steps(syncing) -> None:
    parts = syncing(steps=6, style="explorer_driven")
    is_exploring, seen = threading.Event(), []
    explore_step = parts.explore_step

    def explore(step):
        is_exploring.set()
        result = explore_step(step)
        is_exploring.clear()
        return result

    parts.explore_step = explore
    parts.sync.sync = lambda snapshot: seen.append(is_exploring.is_set()) or 0

    pipeline_of(parts).run()

    assert len(seen) >= 3
    assert not any(seen)


@pytest.mark.parametrize("style", STYLES)
def test_an_evaluation_keeps_its_weights_while_training_goes_on(style, syncing) -> None:
    parts = syncing(steps=3, style=style, eval_interval=2, max_inflight=3)
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

    pipeline_of(parts).run()

    first, last = parts.story.index("asked"), parts.story.index("evaluate 2")
    assert "sync" not in parts.story[first:last]
    assert "train 2: [2, 2, 2, 2]" in parts.story[: last + 2]
    assert parts.story.count("evaluate 2") == parts.story.count("evaluate 3") == 1


@pytest.mark.parametrize("style", STYLES)
def test_a_checkpoint_counts_only_steps_that_have_ended_and_where_they_left_the_explorer(
    style, syncing
) -> None:
    parts = syncing(steps=4, style=style, save_interval=1)
    asked, saved = [], []
    explore_step = parts.explore_step

    def explore(step):
        asked.append(step)
        return explore_step(step)

    parts.explore_step = explore
    parts.explorer_state = lambda: {"after": len(asked)}
    parts.save = lambda progress, state: saved.append((progress.copy(), state))

    pipeline_of(parts).run()

    assert len(saved) >= 4
    for progress, state in saved:
        if progress.explored:
            assert state == {"after": progress.explored}
        assert 4 * progress.explored == 4 * progress.trained + progress.num_waiting


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("per_step", [3, 4, 10])
def test_a_run_that_is_stopped_again_and_again_trains_all_of_it_once(
    style, per_step, syncing
) -> None:
    parts = syncing(steps=7, per_step=per_step, style=style)
    pipeline = pipeline_of(parts)
    num_stops = 0
    while True:
        parts.interrupt.is_requested = num_stops % 2 == 0
        train_step = type(parts).train_step.__get__(parts)

        def stopping(experiences, *, step, train_step=train_step):
            parts.interrupt.is_requested = True
            return train_step(experiences, step=step)

        parts.train_step = stopping
        try:
            pipeline.run()
        except Interrupted:
            num_stops += 1
            progress, pipeline = pipeline.progress.copy(), pipeline_of(parts)
            progress.pulled = progress.trained  # the engines got what the checkpoint holds
            pipeline.resume(progress)
            continue
        break

    assert num_stops > 2
    assert trained(parts) == batches(steps=7, per_step=per_step, size=4)


@pytest.mark.parametrize("style", STYLES)
def test_a_limit_of_optimizer_steps_ends_the_run_with_few_steps_more_than_it_needs(
    style, syncing
) -> None:
    parts = syncing(steps=20, style=style, num_train_steps=3, max_inflight=4)
    pipeline = pipeline_of(parts)

    pipeline.run()

    assert (pipeline.progress.trained, pipeline.progress.explored) == (3, 3)


@pytest.mark.parametrize("style", STYLES)
def test_tasks_that_end_early_end_the_run(style, syncing) -> None:
    parts = syncing(steps=9, style=style)
    explore_step = parts.explore_step

    def explore(step):
        if step > 4:
            raise StopIteration
        return explore_step(step)

    parts.explore_step = explore

    pipeline_of(parts).run()

    assert trained(parts) == batches(steps=4, per_step=4, size=4)
    assert parts.num_explore_steps == 4


@pytest.mark.parametrize("style", STYLES)
def test_a_step_that_fails_ends_the_run_and_what_was_trained_is_saved(style, syncing) -> None:
    parts = syncing(steps=9, style=style, fails_at=4)

    with pytest.raises(RunFailedError, match="too many runs failed"):
        pipeline_of(parts).run()

    assert parts.story[-1].startswith("save")


@pytest.mark.parametrize("style", STYLES)
def test_a_trainer_that_fails_does_not_wait_for_the_step_on_its_way(style, syncing) -> None:
    parts = syncing(steps=9, style=style, train_fails_at=2)
    goes_on, explore_step = threading.Event(), parts.explore_step

    def explore(step):
        assert step < 3 or goes_on.wait(SOON_S)
        return explore_step(step)

    parts.explore_step = explore

    with pytest.raises(TrinityError, match="the loss of a plugin broke"):
        pipeline_of(parts).run()
    goes_on.set()

    assert parts.story[-1] == "save 1"


def test_what_a_run_in_turns_left_due_is_trained_first(syncing) -> None:
    parts = syncing(steps=3, style="trainer_driven", train_batch=6)
    pipeline = pipeline_of(parts)
    parts.storage.rows = [1] * 4
    progress = pipeline.progress
    progress.explored, progress.num_due = 1, 4
    pipeline.resume(progress)

    pipeline.run()

    assert trained(parts) == batches(steps=3, per_step=4, size=6)


def test_it_says_which_step_the_trainer_waits_for(syncing, caplog, monkeypatch) -> None:
    monkeypatch.setattr("trinity.runtime.pipeline_ahead.PATIENCE_S", 0.0)
    monkeypatch.setattr("trinity.runtime.pipeline_ahead.LOOK_S", 0.01)
    parts = syncing(steps=1, style="trainer_driven")
    said, explore_step = threading.Event(), parts.explore_step
    monkeypatch.setattr("trinity.runtime.pipeline_ahead.logger.warning", lambda *args: said.set())

    def explore(step):
        assert said.wait(SOON_S)
        return explore_step(step)

    parts.explore_step = explore

    pipeline_of(parts).run()


def test_a_step_that_ends_after_its_attempt_asks_no_files_how_they_are() -> None:
    begins, goes_on, asked = threading.Event(), threading.Event(), []

    def explore(step):
        begins.set()
        assert goes_on.wait(SOON_S)
        return step

    side = ExplorerSide(explore=explore, evaluate=dict, state=lambda: asked.append(1), begun=0)
    with side:
        side.let(lambda begun: 1)
        assert begins.wait(SOON_S)
    goes_on.set()

    assert len(side.ended(timeout_s=SOON_S)) == 1
    assert not asked


def test_no_step_begins_while_an_explorer_that_decides_gets_weights(syncing, monkeypatch) -> None:
    parts = syncing(steps=6, style="explorer_driven")
    has_ended, is_exploring, seen = threading.Semaphore(0), threading.Event(), []
    explore_step, train_step, go_on = parts.explore_step, parts.train_step, ExplorerSide._next

    def explore(step):
        is_exploring.set()
        result = explore_step(step)
        is_exploring.clear()
        has_ended.release()
        return result

    def train(experiences, *, step):
        assert step == 1 or has_ended.acquire(timeout=SOON_S)
        time.sleep(0.01)  # what ended is there to be noted
        return train_step(experiences, step=step)

    def go_on_late(side):
        time.sleep(0.03)
        return go_on(side)

    def sync(snapshot):
        seen.append(is_exploring.wait(0.06))
        return 0

    def slow_explore(step):
        time.sleep(0.001)
        return explore(step)

    monkeypatch.setattr(ExplorerSide, "_next", go_on_late)
    parts.explore_step, parts.train_step, parts.sync.sync = slow_explore, train, sync

    pipeline_of(parts).run()

    assert seen
    assert not any(seen)


@pytest.mark.parametrize("style", STYLES)
def test_the_last_checkpoint_is_written_once(style, syncing) -> None:
    parts = syncing(steps=9, style=style, save_interval=1, num_train_steps=3)

    pipeline_of(parts).run()

    assert parts.story.count("save 3") == 1
    assert parts.story[-1] == "note 3"


@pytest.mark.parametrize("style", STYLES)
def test_what_is_trained_beside_a_step_is_told_with_the_step(style, syncing) -> None:
    parts, rows = syncing(steps=4, style=style), []
    parts.record = lambda role, metrics, *, step: rows.append((role, step, metrics))
    train_step = parts.train_step

    def train(experiences, *, step):
        time.sleep(0.02)
        return train_step(experiences, step=step)

    parts.train_step = train

    pipeline_of(parts).run()

    beside = [row["time/trained_beside_s"] for role, _, row in rows if role == "explorer"]
    steps = [row["time/step_s"] for role, _, row in rows if role == "synchronizer"]
    assert len(beside) == 4
    assert all(0.0 <= seconds < 0.02 * 4 + SOON_S for seconds in beside)
    assert sum(steps) >= 0.02 * 4  # no optimizer step is in none of them


def test_seconds_beside_two_steps_are_told_with_each_of_them(syncing) -> None:
    pipeline = pipeline_of(syncing(steps=1, style=STYLES[0]))
    pipeline._trained_at.extend([(0.0, 2.0), (3.0, 5.0), (6.0, 9.0)])

    assert pipeline._trained_beside(1.0, 4.0) == 1.0 + 1.0
    assert pipeline._trained_beside(4.0, 7.0) == 1.0 + 1.0
    assert pipeline._trained_beside(7.0, 7.5) == 0.5
