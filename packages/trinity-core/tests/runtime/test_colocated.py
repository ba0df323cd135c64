"""Engines that share the trainer's GPUs sleep in train steps, shown with one that counts."""

from __future__ import annotations

import pytest
from trinity.common.config import Config
from trinity.errors import ModelError
from trinity.runtime.loop import Interrupted
from trinity.synchronizer.memory_sync import ColocatedSync


class CountingEngine:
    """Writes down when it sleeps and wakes; sampling and new weights need memory for it."""

    def __init__(self, story):
        self.story, self.awake = story, {"weights", "kv_cache"}

    def sleep(self, level):
        assert self.awake == {"weights", "kv_cache"}, "it sleeps already"
        self.awake = set()
        self.story.append(f"sleep {level}")

    def wake_up(self, tags):
        assert not self.awake & set(tags), "it is awake"
        self.awake |= set(tags)
        self.story.append(f"wake {tags[0]}")

    def check(self, needed, what):
        assert self.awake == needed, f"{what} while {self.awake} are there"


@pytest.fixture
def colocated(syncing, loops):
    """Return a function that makes parts whose engine sleeps in train steps."""

    def make(**settings):
        parts = syncing(**settings)
        engine, inner, everything = CountingEngine(parts.story), parts.sync, {"weights", "kv_cache"}

        def sync(snapshot):
            assert "weights" in engine.awake, "weights come, and there is no memory for them"
            return inner.sync(snapshot)

        class Sync:
            pass

        Sync.sync = staticmethod(sync)
        parts.sync = parts.colocated = ColocatedSync(Sync, [engine])
        for name, needed in (("explore_step", everything), ("evaluate", everything)):
            loops.before(parts, name, lambda _, name=name, it=needed: engine.check(it, name))
        loops.before(parts, "train_step", lambda _: engine.check(set(), "train_step"))
        return parts

    return make


SLEEPS, WAKES = ["sleep 2"], ["wake weights", "sync", "wake kv_cache"]


def test_it_sleeps_before_each_train_step_and_is_awake_with_new_weights_before_rollouts(
    colocated, loops
) -> None:
    parts = colocated(steps=2)

    loops.of(parts).run()

    assert parts.story == [
        "explore 1", *SLEEPS, "train 1: [1, 1, 1, 1]", *WAKES,
        "explore 2", *SLEEPS, "train 2: [2, 2, 2, 2]", *WAKES,
        "save 2",
    ]  # fmt: skip


def test_it_sleeps_once_where_several_batches_are_trained_between_two_syncs(
    colocated, loops
) -> None:
    parts = colocated(steps=3, interval=2)

    loops.of(parts).run()

    assert parts.story == [
        "explore 1", "explore 2",
        *SLEEPS, "train 1: [1, 1, 1, 1]", "train 2: [2, 2, 2, 2]", *WAKES,
        "explore 3", *SLEEPS, "train 3: [3, 3, 3, 3]", *WAKES,
        "save 3",
    ]  # fmt: skip


@pytest.mark.parametrize("style", ["explorer_driven", "trainer_driven"])
@pytest.mark.parametrize("interval", [1, 2, 3])
def test_no_style_in_turns_samples_asleep_or_trains_beside_an_engine_that_is_awake(
    colocated, loops, style, interval
) -> None:
    """The engine's own checks fail otherwise. Five rows a step leave short batches behind."""
    parts = colocated(
        steps=5, per_step=5, interval=interval, style=style, eval_interval=2, num_train_steps=5
    )
    parts.has_evaluation = True

    loops.of(parts).run()

    assert parts.story.count("sleep 2") >= 2
    assert parts.story.count("wake kv_cache") == parts.story.count("sleep 2")


def test_an_evaluation_after_a_train_step_finds_it_awake(colocated, loops) -> None:
    parts = colocated(steps=2, eval_interval=1)
    parts.has_evaluation = True

    loops.of(parts).run()

    at = parts.story.index("evaluate 1")
    assert parts.story[at - 3 : at] == WAKES
    at = parts.story.index("evaluate 2")
    assert parts.story[at - 3 : at] == WAKES


def test_an_interrupted_run_leaves_it_asleep_and_a_resumed_one_begins_awake(
    colocated, loops
) -> None:
    parts = colocated(steps=2)
    loops.before(parts, "train_step", lambda _: setattr(parts.interrupt, "is_requested", True))
    loop = loops.of(parts)
    with pytest.raises(Interrupted):
        loop.run()
    assert parts.story == ["explore 1", *SLEEPS, "train 1: [1, 1, 1, 1]", "save 1"]

    again = colocated(steps=2)  # a new process makes a new engine
    again.rollouts.load_state_dict(parts.rollouts.state_dict())
    resumed = loops.of(again)
    resumed.resume(loop.progress, parts.rollouts.state_dict())
    again.storage.rows = parts.storage.rows
    resumed.run()

    assert again.story[0] != "sleep 2"
    assert again.story == [
        "sync",  # awake: the checkpoint's weights, as they are
        "explore 2", *SLEEPS, "train 2: [2, 2, 2, 2]", *WAKES,
        "save 2",
    ]  # fmt: skip


def test_weights_that_do_not_arrive_leave_it_without_its_cache() -> None:
    story = []
    engine = CountingEngine(story)

    class Broken:
        @staticmethod
        def sync(snapshot):
            raise ModelError("the weights broke off")

    sync = ColocatedSync(Broken, [engine])
    sync.sleep()

    with pytest.raises(ModelError, match="broke off"):
        sync.sync(lambda: None)

    assert (story, sync.is_asleep) == (["sleep 2", "wake weights"], True)


def test_a_run_is_colocated_by_its_key_in_mode_both_alone() -> None:
    config = Config(explorer={"rollout_model": {"enable_sleep_mode": True}})

    assert config.is_colocated
    assert not Config().is_colocated
    config.mode = "bench"
    assert not config.is_colocated
