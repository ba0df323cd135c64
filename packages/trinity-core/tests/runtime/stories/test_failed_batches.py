"""Where groups begin one by one, a batch that could not be trained is taken again, whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from trinity.errors import PluginError, TrinityError

sys.path.insert(0, str(Path(__file__).parent))
from clocked_run import Parts, World, start
from scenarios import Scenario

SCENARIO = Scenario("fully_async", steps=4, inflight=2, groups=2, rows=(2,), batch=4)


class Telling(Parts):
    """Parts that note the explore steps of which a row is written."""

    def record(self, role, metrics, *, step):
        if role == "explorer":
            self.world.rows = [*getattr(self.world, "rows", []), (step, len(metrics))]

    def put_back_batch(self):
        batch, self.in_hand = self.in_hand, ()
        if batch:
            self.source.put_back(batch)
        self.groups.put_back()


def test_each_explore_step_has_one_row_and_all_of_it() -> None:
    world = World(SCENARIO)
    parts = Telling(world)
    train_step = parts.train_step

    def fails_in_the_third(rows, *, step):
        if step == 3:
            raise ValueError("the loss of a plugin broke")
        return train_step(rows, step=step)

    parts.train_step = fails_in_the_third
    with pytest.raises(TrinityError, match="the loss of a plugin broke"):
        start(world, parts)
    world.passes = []

    start(world, Telling(world))

    assert [step for step, _ in world.rows] == [1, 2, 3, 4]
    assert len({count for _, count in world.rows}) == 1
    trained = [row for line in world.story if line[0] == "train" for row in line[2]]
    assert sorted(trained) == sorted([*range(8), *range(8)])


def test_a_batch_that_the_shelf_does_not_hold_counts_as_no_explore_step() -> None:
    world = World(SCENARIO)
    parts, taken = Telling(world), []
    take = parts.storage.take

    def lost_in_the_third(groups):
        taken.append(groups)
        if len(taken) == 3:
            raise TrinityError("the buffer does not hold it")
        return take(groups)

    parts.storage.take = lost_in_the_third
    with pytest.raises(TrinityError, match="does not hold it"):
        start(world, parts)

    progress = world.saved["state"]["progress"]
    assert (progress["train_steps"], progress["explore_steps"]) == (2, 2)


def test_a_strategy_that_gives_no_batch_of_whole_groups_is_refused() -> None:
    world = World(SCENARIO)
    parts = Telling(world)

    def nothing(step):
        raise StopIteration

    parts.sample = nothing

    with pytest.raises(PluginError, match="gave no batch of 4 experiences that are ready"):
        start(world, parts)
