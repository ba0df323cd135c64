"""Groups begin when there is room for them, and a step takes the oldest whole batch."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from trinity.common.config import Config
from trinity.common.experience import Experience
from trinity.common.workflows import Workflow
from trinity.errors import EnvError, RunFailedError
from trinity.explorer import flight_metrics
from trinity.explorer.continuous import ContinuousExplorer
from trinity.explorer.local import build_scheduler
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

LIMIT_S = 20.0


class Held(Workflow):
    """Answers once the test lets it: its question is its name in ``doors``."""

    doors: dict[str, threading.Event] = {}  # noqa: RUF012 -- of one test at a time
    fails: set[str] = set()  # noqa: RUF012 -- the same

    def run(self):
        name = self.task.raw_task["question"]
        if name in self.doors:
            self.doors[name].wait(LIMIT_S)
        if name in self.fails:
            raise EnvError("the shop is closed")
        return [Experience(tokens=[1, 2, 3], prompt_length=1, reward=1.0)]


class Stream:
    """Eight tasks, or one after the other without an end, and where they stand."""

    num_steps = 4
    is_endless = False

    def __init__(self):
        self.position, self.fed = 0, []

    def _task(self, row):
        task = a_task(f"{row}", workflow=Held, repeat_times=2)
        task.index = {"taskset_id": 0, "index": row}
        return task

    def again(self, index):
        return self._task(index["index"])

    def read(self, count):
        if self.position >= 8 and not self.is_endless:
            raise StopIteration
        last = self.position + count
        first, self.position = self.position, last if self.is_endless else min(8, last)
        return [self._task(row) for row in range(first, self.position)]

    def feedback(self, outcomes):
        self.fed.append(outcomes)

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class Groups:
    """What was written and taken; stands for pipeline and shelf."""

    def __init__(self):
        self.written, self.taken = [], []

    def process(self, exps):
        self.written.append(f"{exps[0].eid.batch}/{exps[0].eid.task}")
        return {"experience_pipeline/num_written": float(len(exps))}

    def feedback(self):
        return {}

    def take(self, groups, *, is_again=False):
        self.taken.append(list(groups))
        return 2 * len(groups)

    def close(self):
        pass


class HeldOut:
    """An evaluation of one task, which is held by its name."""

    name, repeat_times = "held_out", 1

    def tasks(self):
        return [a_task("held_out", workflow=Held)]


@pytest.fixture
def explorer():
    """Return a function that builds one with two groups a batch, and its stream and groups."""
    made = []

    def build(*, held=(), fails=(), max_inflight_batches=2, window=0.0, **settings):
        Held.doors = {str(row): threading.Event() for row in held}
        Held.fails = {str(row) for row in fails}
        config = Config()
        config.buffer.batch_size = 2
        config.explorer.max_inflight_batches = max_inflight_batches
        config.explorer.window = window
        config.explorer.max_timeout, config.explorer.max_retry_times = LIMIT_S, 0
        for name, value in settings.items():
            setattr(config.explorer, name, value)
        engine = ScriptedEngine("46", repeat=True)
        stream, groups = Stream(), Groups()
        one = ContinuousExplorer(
            config,
            tasks=stream,
            scheduler=build_scheduler(config, engines=[engine], model=model_over(engine)),
            pipeline=groups,
            shelf=groups,
        )
        made.append(one)
        return one, stream, groups

    yield build
    for door in Held.doors.values():
        door.set()
    for one in made:
        one.close()
        one.close()


def test_no_more_groups_begin_than_there_are_places(explorer) -> None:
    one, stream, groups = explorer()

    result = one.next_batch(1, timeout_s=LIMIT_S)

    assert result is not None
    assert result.num_experiences == 4
    assert groups.taken == [["1/0", "1/1"]]
    assert stream.position == 4  # two batches: the places of the first are free after a sync

    one.loaded(1)

    assert stream.position == 6


def test_a_step_takes_the_groups_in_order_whatever_ended_first(explorer) -> None:
    one, _, groups = explorer(held=[0])

    assert one.next_batch(1, timeout_s=0.3) is None

    Held.doors["0"].set()
    one.explore_step(1)

    assert groups.taken == [["1/0", "1/1"]]


def test_within_the_window_a_slow_group_is_overtaken(explorer) -> None:
    one, _, groups = explorer(held=[0, 3], window=0.75)

    result = one.explore_step(1)

    assert groups.taken == [["1/1", "2/0"]]
    assert result.metrics["groups/overtaken"] == 1.0
    assert result.metrics["groups/running"] == 2.0


def test_a_group_that_is_dropped_is_replaced_by_the_next_task(explorer) -> None:
    one, stream, groups = explorer(fails=[1], max_failed_ratio=1.0)

    result = one.explore_step(1)

    assert groups.taken == [["1/0", "2/0"]]
    assert stream.position == 6  # two tasks are chosen together
    assert result.metrics["groups/dropped"] == 1.0


def test_of_tasks_without_an_end_too_many_in_vain_cost_the_run_a_step(explorer) -> None:
    one, stream, groups = explorer(fails=range(45), max_failed_ratio=1.0)
    stream.is_endless = one._is_endless = True
    first = one.explore_step(1)
    one.loaded(1)
    one.explore_step(2)
    one.loaded(2)

    with pytest.raises(StopIteration):  # after two of four: twice ten batches were in vain
        one.explore_step(3)

    assert first.metrics["groups/dropped"] == 45.0
    assert sorted(groups.written) == sorted(name for batch in groups.taken for name in batch)
    again, _, _ = explorer()
    again._is_endless = True
    again.load_state_dict(one.state_dict())
    with pytest.raises(StopIteration):
        again.explore_step(3)


def test_tasks_that_were_chosen_and_have_not_begun_are_saved(explorer) -> None:
    one, _, _ = explorer(fails=[1], max_failed_ratio=1.0)
    one.explore_step(1)
    again, _, groups = explorer()
    again.load_state_dict(one.state_dict())
    again.loaded(1)
    for step in (2, 3, 4):
        again.explore_step(step)
        again.loaded(step)

    assert one.state_dict()["ahead"] == [{"taskset_id": 0, "index": 5}]
    assert groups.taken[1:] == [["2/1", "3/0"], ["3/1", "4/0"], ["4/1"]]


def test_too_many_failures_end_the_run(explorer) -> None:
    one, _, _ = explorer(fails=range(8))

    with pytest.raises(RunFailedError, match="the shop is closed"):
        one.explore_step(1)


def test_one_bad_group_that_ends_first_is_no_reason_to_end_the_run(explorer) -> None:
    one, _, groups = explorer(held=[1, 2, 3], fails=[0], max_failed_ratio=0.5)

    assert one.next_batch(1, timeout_s=0.5) is None  # it ended, and nothing else has

    for row in (1, 2, 3):
        Held.doors[str(row)].set()
    one.explore_step(1)

    assert groups.taken == [["1/1", "2/0"]]


def test_a_run_of_fewer_groups_than_a_batch_may_fail_too(explorer) -> None:
    one, stream, _ = explorer(fails=[7], max_failed_ratio=0.5)
    stream.position = 7

    with pytest.raises(RunFailedError, match="the shop is closed"):
        one.explore_step(1)


def test_groups_that_were_dropped_after_the_last_step_are_told(explorer, caplog) -> None:
    one, stream, groups = explorer(held=[7], fails=[7], max_failed_ratio=1.0)
    stream.position = 5
    one.explore_step(1)
    one.loaded(1)
    Held.doors["7"].set()

    with caplog.at_level(logging.WARNING), pytest.raises(StopIteration):
        one.explore_step(2)

    assert groups.taken == [["1/0", "1/1"]]
    assert "1 group was dropped after the last step" in caplog.text


def test_all_groups_are_taken_before_the_run_is_over(explorer) -> None:
    one, _, groups = explorer(fails=[3], max_failed_ratio=1.0, max_inflight_batches=3)
    for step in range(1, 5):
        one.explore_step(step)
        one.loaded(step)

    with pytest.raises(StopIteration):
        one.explore_step(5)
    names = [name for batch in groups.taken for name in batch]
    assert names == ["1/0", "1/1", "2/0", "3/0", "3/1", "4/0", "4/1"]


def test_an_evaluation_stands_in_line_with_groups(explorer) -> None:
    one, _, groups = explorer(held=[0, 1])
    one.next_batch(1, timeout_s=0.0)

    class Evaluation:
        name, repeat_times = "held_out", 1

        def tasks(self):
            return [a_task("6 x 7?", workflow=Held), a_task("5 x 5?", workflow=Held)]

    one._evaluation_sets = [Evaluation()]
    metrics = one.evaluate(1)

    assert metrics["eval/held_out/num_tasks"] == 2.0
    assert groups.taken == []


def test_no_group_is_too_slow_because_an_evaluation_has_the_slots(explorer) -> None:
    limit = {"enable": True, "ratio": 3.0, "warmup_min_steps": 1}
    one, _, _ = explorer(held=[0, "held_out"], dynamic_timeout=limit)
    one._slow.ended(10.0)  # so 30 s are too much
    one._slow.stepped()
    one.next_batch(1, timeout_s=0.0)
    one._evaluation_sets = [HeldOut()]
    with ThreadPoolExecutor(1) as pool:
        evaluating = pool.submit(one.evaluate, 1)
        while not one._own.where(("eval/1/held_out", 0)).startswith("engine"):
            time.sleep(0.01)
        one._began[0] -= 1000.0
        one._cut_slow_ones()
        time.sleep(0.2)
        was_running = 0 in one._flight.running
        Held.doors["held_out"].set()
        evaluating.result(LIMIT_S)

    assert was_running
    assert time.monotonic() - one._began[0] < LIMIT_S  # it counts from the evaluation's end


def test_a_place_that_was_saved_has_what_ran_written_or_not(explorer) -> None:
    one, _, _ = explorer(held=[0, 2])
    one.next_batch(1, timeout_s=0.5)
    state = one.state_dict()
    again, stream, groups = explorer()
    again.load_state_dict(state)
    again.loaded(0)
    again.explore_step(1)
    again.loaded(1)
    again.explore_step(2)

    assert [number for number, _ in state["flight"]["running"]] == [0, 2]
    assert groups.taken[1:] == [["1/0", "1/1"], ["2/0", "2/1"]]  # the first: what was due then
    assert {"1/1", "2/1"} & set(groups.written) == set()
    assert stream.position == 6


def test_who_waits_long_is_told_for_which_group(explorer, caplog, monkeypatch) -> None:
    monkeypatch.setattr(flight_metrics, "PATIENCE_S", 0.0)
    one, _, _ = explorer(held=[0])

    with caplog.at_level(logging.WARNING):
        one.next_batch(1, timeout_s=0.1)

    assert "the trainer waits for group 1/0, which engine-0 has answered for 0 s" in caplog.text


def test_a_group_that_is_not_waited_for_is_replaced_and_is_no_fault(explorer) -> None:
    over = {"ratio": 0.5, "wait_after_min": 2.0}  # enough for the others to end
    one, _, groups = explorer(
        held=[0], over_rollout=over, max_failed_ratio=0.0, on_failed_run="fail"
    )

    result = one.explore_step(1)

    assert groups.taken == [["1/1", "2/0"]]
    assert result.metrics["groups/cut"] == result.metrics["groups/dropped"] == 1.0
    assert result.metrics["rollout/failed_runs"] == 0.0


def test_a_group_that_takes_much_longer_than_others_is_cut(explorer) -> None:
    limit = {"enable": True, "ratio": 3.0, "warmup_min_steps": 1}
    one, _, groups = explorer(held=[2], dynamic_timeout=limit)
    one._slow.ended(3.0)  # others take so long: no group of a busy machine takes three times that
    one.explore_step(1)
    one.loaded(1)

    result = one.explore_step(2)

    assert groups.taken[1] == ["2/1", "3/0"]
    assert result.metrics["groups/cut"] == 1.0


def test_a_group_that_began_again_elsewhere_has_its_whole_time_there(explorer, monkeypatch) -> None:
    limit = {"enable": True, "ratio": 3.0, "warmup_min_steps": 1}
    one, _, groups = explorer(held=[0], dynamic_timeout=limit)
    one._slow.ended(3.0)
    one._slow.stepped()
    monkeypatch.setattr(one._own, "moved", lambda: [0], raising=False)
    assert one.next_batch(1, timeout_s=0.2) is None
    one._began[0] -= 60.0  # with the engine that was lost
    assert one.next_batch(1, timeout_s=2.5) is None  # the pump has looked
    Held.doors["0"].set()
    one.explore_step(1)

    assert groups.taken == [["1/0", "1/1"]]
