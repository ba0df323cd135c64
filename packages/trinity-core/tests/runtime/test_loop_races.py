"""What happens between two looks of the loop: a signal, the end of the tasks, a new rollout."""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
from trinity.runtime.loop import Interrupted
from trinity.runtime.rollouts import Rollouts

STYLES = ["fixed", "explorer_driven", "trainer_driven"]


class AskedAt:
    """Asked to stop when it is looked at for the n-th time: a Ctrl-C between two looks."""

    def __init__(self, number) -> None:
        self.number, self.count = number, 0

    @property
    def is_requested(self) -> bool:
        self.count += 1
        return self.count >= self.number


@pytest.mark.usefixtures("quick_looks")
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("in_turns", [True, False])
def test_a_stop_between_any_two_looks_is_no_failure(style, in_turns, evaluating, loops) -> None:
    for number in range(1, 60):
        settings = {"interval": 2, "eval_interval": 2, "in_turns": in_turns}
        parts = evaluating(steps=5, style=style, **settings)
        parts.interrupt = AskedAt(number)

        with suppress(Interrupted):
            loops.of(parts).run()


def test_rows_are_counted_while_rollouts_begin(overlapped, loops) -> None:
    before, end = sys.getswitchinterval(), time.monotonic() + 2.0
    sys.setswitchinterval(1e-6)
    try:
        while time.monotonic() < end:
            settings = {"style": "trainer_driven", "per_step": 1, "train_batch": 1}
            loops.of(overlapped(steps=60, max_inflight=20, **settings)).run()
    finally:
        sys.setswitchinterval(before)


def test_tasks_that_end_during_a_sync_end_once(overlapped, loops) -> None:
    parts = overlapped(steps=9, style="trainer_driven", max_inflight=3)
    is_syncing, ends = threading.Event(), []

    def explore(step):
        if step > 2:
            is_syncing.clear()
            is_syncing.wait(1.0)
            ends.append(step)
            raise StopIteration

    def sync(snapshot):
        is_syncing.set()
        time.sleep(0.05)

    loops.before(parts, "explore_step", explore)
    loops.before(parts.sync, "sync", sync)
    loop = loops.of(parts)

    loop.run()

    assert ends == [3]
    assert [line for line in parts.story if line.startswith("train")] == [
        "train 1: [1, 1, 1, 1]",
        "train 2: [2, 2, 2, 2]",
    ]
    assert (loop.progress.tasks_ended_of, parts.num_explore_steps) == (9, 2)


def test_a_wait_for_an_evaluation_names_its_explore_step_and_no_group(fake_parts, caplog) -> None:
    parts = fake_parts(steps=4, in_turns=False)
    parts.groups = SimpleNamespace(check=lambda: None)
    parts.rollouts.begun = 37  # the youngest group
    rollouts = Rollouts(parts)
    rollouts.evaluate(4)
    rollouts._patience_s = 0.0

    with caplog.at_level(logging.WARNING):
        rollouts.wait(-1)

    assert "the trainer waits for the evaluation after step 4" in caplog.text
