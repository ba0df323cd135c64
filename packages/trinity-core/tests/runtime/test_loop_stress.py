"""Real threads with random delays: no row is older than its policy allows, none is trained twice.

Between the look whether a sync is due and the weights nothing may begin, and rollouts begin and
end whenever they like: what a clock cannot show, many short runs do.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest
from trinity.common.sync_policy import Consume
from trinity.runtime.loop import Interrupted

STYLES = ["fixed", "explorer_driven", "trainer_driven"]


@pytest.fixture
def delayed(syncing):
    """Return counting parts whose sides take a random time, and that note each row's version."""

    class Delayed(syncing):
        def __init__(self, dice, **settings):
            super().__init__(in_turns=False, **settings)
            self.dice, self.versions, self.ages, self.trained = dice, {}, [], Counter()
            self.engines_version = 0
            self.is_syncing = threading.Event()

        def pause(self):
            time.sleep(self.dice.choice([0.0, 0.0, 0.0001, 0.0003]))

        def explore_step(self, step):
            if self.policy.pulls_at_barrier:
                assert not self.is_syncing.is_set()
            self.versions[step] = self.engines_version
            self.pause()
            return super().explore_step(step)

        def train_step(self, experiences, *, step):
            self.pause()
            self.ages.append(step - 1 - min(self.versions[row] for row in experiences))
            self.trained.update(experiences)
            return {}

        def _note_sync(self, snapshot):
            self.is_syncing.set()
            self.pause()
            self.engines_version = self.loop.progress.train_steps
            self.is_syncing.clear()
            return self.engines_version

    return Delayed


def run_one(seed, delayed, loops) -> None:
    dice = random.Random(seed)
    style = dice.choice(STYLES)
    settings = {
        "steps": dice.randint(3, 9),
        "per_step": dice.choice([2, 3, 4, 8]),
        "train_batch": dice.choice([2, 4, 6]),
        "interval": dice.randint(1, 3),
        "offset": dice.randint(0, 2) if style == "fixed" else 0,
        "style": style,
        "max_inflight": dice.randint(1, 4),
    }
    parts = delayed(dice, **settings)
    parts.loop = loops.of(parts)

    parts.loop.run()

    size, per_step = settings["train_batch"], settings["per_step"]
    most = parts.policy.max_off_policy_steps(batch=size, most=per_step, most_over=size - 1)
    assert max(parts.ages) <= most, (seed, settings)
    assert parts.trained == Counter(dict.fromkeys(range(1, settings["steps"] + 1), per_step)), seed
    assert parts.policy.consume in {Consume.ROUNDS, Consume.ROWS}


@pytest.mark.parametrize("block", range(4))
def test_schedules_with_random_delays_keep_the_bound(block, delayed, loops) -> None:
    for seed in range(block * 100, block * 100 + 100):
        run_one(seed, delayed, loops)


@pytest.mark.acceptance
@pytest.mark.parametrize("block", range(10))
def test_ten_thousand_schedules_with_random_delays_keep_the_bound(block, delayed, loops) -> None:
    for seed in range(block * 1000, block * 1000 + 1000):
        run_one(seed, delayed, loops)


@pytest.mark.usefixtures("quick_looks")
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("where", ["explore_step", "train_step", "sync", "evaluate"])
def test_a_stop_that_is_asked_for_anywhere_saves_and_ends_and_all_is_trained_once(
    style, where, overlapped, loops
) -> None:
    parts = overlapped(steps=6, style=style, offset=int(style == "fixed"), eval_interval=2)
    parts.has_evaluation, calls = True, []

    def ask(step):
        calls.append(step)
        parts.interrupt.is_requested = len(calls) in {2, 4}

    loops.before(parts.sync if where == "sync" else parts, where, ask)
    loop, num_stops = loops.of(parts), 0
    while True:
        try:
            loop.run()
        except Interrupted:
            assert parts.story[-1].startswith(("save", "note"))
            num_stops += 1
            parts.interrupt.is_requested = False
            parts.storage.rows = parts.storage.rows[: parts.rollouts.num_rows()]
            loop = loops.resumed(loop)
            continue
        break

    assert num_stops >= 1
    trained = [line.partition(": ")[2] for line in parts.story if line.startswith("train")]
    assert sorted(trained) == [str([step] * 4) for step in range(1, 7)]
