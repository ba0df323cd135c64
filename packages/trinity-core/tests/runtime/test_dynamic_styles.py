"""In which order a run explores, trains and syncs where one side decides."""

from __future__ import annotations

import pytest
from trinity.runtime.pipeline import Interrupted, Pipeline


def test_an_explorer_that_decides_takes_only_weights_that_are_newer(syncing) -> None:
    parts = syncing(steps=5, per_step=10, train_batch=16, style="explorer_driven")

    Pipeline(parts).run()

    assert parts.story == [
        "explore 1",  # 10 experiences: too few for a batch, and nothing newer to take
        "explore 2", f"train 1: {[1] * 10 + [2] * 6}", "sync",
        "explore 3",  # 4 + 10
        "explore 4", f"train 2: {[2] * 4 + [3] * 10 + [4] * 2}", "sync",
        "explore 5", f"train 3: {[4] * 8 + [5] * 8}", "sync",
        "train 4: [5, 5]", "sync",  # the end: nothing is lost
        "save 4",
    ]  # fmt: skip


def test_an_explorer_that_decides_asks_each_interval_of_its_own_steps(syncing) -> None:
    parts = syncing(steps=5, per_step=4, train_batch=8, interval=2, style="explorer_driven")

    Pipeline(parts).run()

    assert parts.story == [
        "explore 1", "explore 2", f"train 1: {[1] * 4 + [2] * 4}", "sync",
        "explore 3", "explore 4", f"train 2: {[3] * 4 + [4] * 4}", "sync",
        "explore 5", "train 3: [5, 5, 5, 5]", "sync",
        "save 3",
    ]  # fmt: skip


def test_a_trainer_that_decides_hands_over_each_interval_of_its_own_steps(syncing) -> None:
    parts = syncing(steps=3, per_step=10, train_batch=8, interval=2, style="trainer_driven")

    Pipeline(parts).run()

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
    syncing, style, interval
) -> None:
    settings = {"per_step": 10, "train_batch": 16, "interval": interval, "style": style}
    whole, stopped = (syncing(steps=7, **settings) for _ in "ab")
    Pipeline(whole).run()
    pipeline = Pipeline(stopped)
    while True:
        stopped.interrupt.is_requested = True
        try:
            pipeline.run()
        except Interrupted:
            pipeline = resumed(stopped, pipeline.progress)
            continue
        break

    def without_saves(parts):
        return [line for line in parts.story if not line.startswith(("save", "note"))]

    assert without_saves(stopped) == without_saves(whole)
    trained = sum(line.count(",") + 1 for line in whole.story if line.startswith("train"))
    assert trained == 70


def resumed(parts, progress):
    """Return a pipeline that goes on, as after a restart."""
    pipeline = Pipeline(parts)
    pipeline.resume(progress.copy())
    return pipeline


def test_what_is_too_old_to_be_trained_ends_the_turn(syncing) -> None:
    parts = syncing(steps=2, style="explorer_driven")

    def all_too_old(step):
        parts.storage.rows.clear()
        raise StopIteration

    parts.sample = all_too_old
    pipeline = Pipeline(parts)
    pipeline.run()

    assert parts.story == ["explore 1", "explore 2", "save 0"]
    assert pipeline.progress.num_due == 0


def test_a_trainer_whose_next_batch_is_too_old_hands_over_what_it_has(syncing) -> None:
    parts = syncing(steps=3, train_batch=4, interval=2, style="trainer_driven")
    sample = parts.sample

    def second_too_old(step):
        if parts.storage.rows == [2] * 4:
            parts.storage.rows.clear()
            raise StopIteration
        return sample(step)

    parts.sample = second_too_old
    Pipeline(parts).run()

    assert parts.story == [
        "explore 1",
        "explore 2", "train 1: [1, 1, 1, 1]", "sync",  # a resumed run would go on with these too
        "explore 3", "train 2: [3, 3, 3, 3]", "sync",
        "save 2",
    ]  # fmt: skip
