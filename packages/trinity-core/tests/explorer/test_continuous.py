"""Groups begin while there are slots, and a train step consumes the oldest whole batch."""

from __future__ import annotations

import logging
import sys
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest
from trinity.errors import RunFailedError
from trinity.explorer import group_metrics as step_metrics
from trinity_testing.builders import a_task

sys.path.insert(0, str(Path(__file__).parent))
from continuous_run import LIMIT_S, Held, HeldOut, begin_run


@pytest.fixture
def a_run():
    """Return a function that begins one with two groups a batch."""
    made = []

    def build(**given):
        made.append(begin_run(**given))
        return made[-1]

    yield build
    for door in Held.doors.values():
        door.set()
    for run in made:
        run.explorer.close()
        run.explorer.close()


def test_no_more_groups_begin_than_there_are_slots(a_run) -> None:
    run = a_run()

    result = run.batch(1)

    assert result.num_experiences == 4
    assert run.groups.consumed == [["1/0", "1/1"]]
    assert run.stream.position == 4  # two batches: the slots of the first are free after a sync

    run.synced(1)

    assert run.stream.position == 6


def test_a_step_consumes_the_groups_in_order_whatever_ended_first(a_run) -> None:
    run = a_run(held=[0])

    assert run.batch(1, limit_s=0.3) is None

    Held.doors["0"].set()
    run.batch(1)

    assert run.groups.consumed == [["1/0", "1/1"]]


def test_within_the_window_a_slow_group_is_overtaken(a_run) -> None:
    run = a_run(held=[0, 3], window=0.75)

    result = run.batch(1)

    assert run.groups.consumed == [["1/1", "2/0"]]
    assert result.metrics["groups/overtaken"] == 1.0
    assert result.metrics["groups/running"] == 2.0
    assert result.metrics["groups/waiting"] == 0.0


def test_a_step_tells_how_many_train_steps_the_oldest_group_has_not_seen(a_run) -> None:
    run = a_run(max_inflight_batches=3)
    ages = []
    for step in (1, 2, 3, 4):
        ages.append(run.batch(step).metrics["age/in_flight"])
        if step == 1:
            run.synced(1)  # groups 6 and 7 begin with version 1, all others with version 0

    assert ages == [0.0, 1.0, 2.0, 2.0]


def test_a_group_that_is_dropped_is_replaced_by_the_next_task(a_run) -> None:
    run = a_run(fails=[1], max_failed_ratio=1.0)

    result = run.batch(1)

    assert run.groups.consumed == [["1/0", "2/0"]]
    assert run.stream.position == 6  # two tasks are chosen together
    assert result.metrics["groups/dropped"] == 1.0


def test_of_tasks_without_an_end_too_many_in_vain_cost_the_run_a_step(a_run) -> None:
    run = a_run(fails=range(45), max_failed_ratio=1.0)
    run.stream.is_endless = run.explorer._is_endless = True
    first = run.batch(1)
    run.synced(1)
    run.batch(2)
    run.synced(2)

    with pytest.raises(StopIteration):  # after two of four: twice ten batches were in vain
        run.batch(3)

    assert first.metrics["groups/dropped"] == 45.0
    names = [name for batch in run.groups.consumed for name in batch]
    assert sorted(run.groups.written) == sorted(names)
    again = a_run()
    again.explorer._is_endless = True
    again.resume(run.saved(), version=2)
    with pytest.raises(StopIteration):
        again.batch(3)


def test_tasks_that_were_chosen_and_have_not_begun_are_saved(a_run) -> None:
    run = a_run(fails=[1], max_failed_ratio=1.0)
    run.batch(1)
    again = a_run()
    again.resume(run.saved(), version=1)
    for step in (2, 3, 4):
        again.batch(step)
        again.synced(step)

    assert run.saved()["ahead"] == [{"taskset_id": 0, "index": 5}]
    assert again.groups.consumed == [["2/1", "3/0"], ["3/1", "4/0"], ["4/1"]]


def test_too_many_failures_end_the_run(a_run) -> None:
    run = a_run(fails=range(8))

    with pytest.raises(RunFailedError, match="the shop is closed"):
        run.batch(1)


def test_one_bad_group_that_ends_first_is_no_reason_to_end_the_run(a_run) -> None:
    run = a_run(held=[1, 2, 3], fails=[0], max_failed_ratio=0.5)

    assert run.batch(1, limit_s=0.5) is None  # it ended, and nothing else has

    for row in (1, 2, 3):
        Held.doors[str(row)].set()
    run.batch(1)

    assert run.groups.consumed == [["1/1", "2/0"]]


def test_a_run_of_fewer_groups_than_a_batch_may_fail_too(a_run) -> None:
    run = a_run(fails=[7], max_failed_ratio=0.5)
    run.stream.position = 7

    with pytest.raises(RunFailedError, match="the shop is closed"):
        run.batch(1)
    assert run.explorer.failed_attempts.count == 2


def test_groups_that_were_dropped_after_the_last_step_are_told(a_run, caplog) -> None:
    run = a_run(held=[7], fails=[7], max_failed_ratio=1.0)
    run.stream.position = 5
    run.batch(1)
    run.synced(1)
    Held.doors["7"].set()

    with caplog.at_level(logging.WARNING), pytest.raises(StopIteration):
        run.batch(2)

    assert run.groups.consumed == [["1/0", "1/1"]]
    assert "1 group was dropped after the last step" in caplog.text


def test_all_groups_are_consumed_before_the_run_is_over(a_run) -> None:
    run = a_run(fails=[3], max_failed_ratio=1.0, max_inflight_batches=3)
    for step in range(1, 5):
        run.batch(step)
        run.synced(step)

    with pytest.raises(StopIteration):
        run.batch(5)
    names = [name for batch in run.groups.consumed for name in batch]
    assert names == ["1/0", "1/1", "2/0", "3/0", "3/1", "4/0", "4/1"]


def test_no_group_is_out_as_long_as_one_runs_or_may_still_begin(a_run) -> None:
    run = a_run(held=[7])
    is_out = [run.explorer.is_out]
    for step in (1, 2, 3):
        run.batch(step)
        run.synced(step)
        is_out.append(run.explorer.is_out)
    assert run.batch(4, limit_s=0.2) is None  # 6 is ready, 7 runs
    is_out.append(run.explorer.is_out)
    Held.doors["7"].set()
    run.batch(4)

    assert is_out == [False] * 5
    assert run.explorer.is_out


def test_an_evaluation_stands_in_line_with_groups(a_run) -> None:
    run = a_run(held=[0, 1])
    run.batch(1, limit_s=0.0)

    class Evaluation:
        name, repeat_times = "held_out", 1

        def tasks(self):
            return [a_task("6 x 7?", workflow=Held), a_task("5 x 5?", workflow=Held)]

    run.explorer._evaluation_sets = [Evaluation()]
    metrics = run.explorer.evaluate(1)

    assert metrics["eval/held_out/num_tasks"] == 2.0
    assert run.groups.consumed == []


def test_no_group_is_too_slow_because_an_evaluation_has_the_slots(a_run) -> None:
    limit = {"enable": True, "ratio": 3.0, "warmup_min_steps": 1}
    run = a_run(held=[0, "held_out"], dynamic_timeout=limit)
    one = run.explorer
    one._slow.ended(10.0)  # so 30 s are too much
    one._slow.stepped()
    run.batch(1, limit_s=0.0)
    one._evaluation_sets = [HeldOut()]
    with ThreadPoolExecutor(1) as pool:
        evaluating = pool.submit(one.evaluate, 1)
        while not one._own.where(("eval/1/held_out", 0)).startswith("engine"):
            time.sleep(0.01)
        one._began[0] -= 1000.0
        one._cut_slow_ones()
        time.sleep(0.2)
        was_running = 0 in run.buffer.running
        Held.doors["held_out"].set()
        evaluating.result(LIMIT_S)

    assert was_running
    assert time.monotonic() - one._began[0] < LIMIT_S  # it counts from the evaluation's end


def test_a_state_that_was_saved_has_what_ran_written_or_not(a_run) -> None:
    run = a_run(held=[0, 2])
    run.batch(1, limit_s=0.5)
    state = run.saved()
    again = a_run()
    again.resume(state, version=0)
    again.batch(1)
    again.synced(1)
    again.batch(2)

    slots = state["rollouts"]["slots"]
    assert [number for number, name, *_ in slots if name == "running"] == [0, 2]
    assert again.groups.consumed == [["1/0", "1/1"], ["2/0", "2/1"]]
    assert {"1/1", "2/1"} & set(again.groups.written) == set()
    assert again.stream.position == 6


def test_groups_that_run_again_have_the_weights_of_the_resumed_run(a_run) -> None:
    run = a_run(held=[0, 2])
    run.batch(1, limit_s=0.5)
    again = a_run(held=[0, 2])
    again.resume(run.saved(), version=3)

    assert {number: one.version for number, one in again.buffer.slots.items()} == {
        0: 3, 1: 0, 2: 3, 3: 0,
    }  # fmt: skip


def test_who_waits_long_is_told_for_which_group(a_run, caplog, monkeypatch) -> None:
    monkeypatch.setattr(step_metrics, "PATIENCE_S", 0.0)
    run = a_run(held=[0])

    with caplog.at_level(logging.WARNING):
        run.batch(1, limit_s=0.1)

    assert "the trainer waits for group 1/0 (straggler), running on engine-0 for 0 s" in caplog.text


def test_a_group_that_is_not_waited_for_is_replaced_and_is_no_fault(a_run) -> None:
    over = {"ratio": 0.5, "wait_after_min": 2.0}  # enough for the others to end
    run = a_run(held=[0], over_rollout=over, max_failed_ratio=0.0, on_failed_run="fail")

    result = run.batch(1)

    assert run.groups.consumed == [["1/1", "2/0"]]
    assert result.metrics["groups/cut"] == result.metrics["groups/dropped"] == 1.0
    assert result.metrics["rollout/failed_runs"] == 0.0


def test_a_group_that_takes_much_longer_than_others_is_cut(a_run) -> None:
    limit = {"enable": True, "ratio": 3.0, "warmup_min_steps": 1}
    run = a_run(held=[2], dynamic_timeout=limit)
    run.explorer._slow.ended(
        3.0
    )  # others take so long: none of a busy machine takes three times that
    run.batch(1)
    run.synced(1)

    result = run.batch(2)

    assert run.groups.consumed[1] == ["2/1", "3/0"]
    assert result.metrics["groups/cut"] == 1.0


def test_a_group_that_began_again_elsewhere_has_its_whole_time_there(a_run, monkeypatch) -> None:
    limit = {"enable": True, "ratio": 3.0, "warmup_min_steps": 1}
    run = a_run(held=[0], dynamic_timeout=limit)
    run.explorer._slow.ended(3.0)
    run.explorer._slow.stepped()
    monkeypatch.setattr(run.explorer._own, "moved", lambda: [0], raising=False)
    assert run.batch(1, limit_s=0.2) is None
    run.explorer._began[0] -= 60.0  # with the engine that was lost
    assert run.batch(1, limit_s=2.5) is None  # the pump has looked
    Held.doors["0"].set()
    run.batch(1)

    assert run.groups.consumed == [["1/0", "1/1"]]


def test_an_evaluation_that_is_under_way_ends_where_the_explorer_is_closed(a_run) -> None:
    run = a_run(held=["held_out"])
    run.explorer._evaluation_sets = [HeldOut()]
    with ThreadPoolExecutor(1) as pool:
        evaluating = pool.submit(run.explorer.evaluate, 1)
        while not run.explorer._own.where(("eval/1/held_out", 0)).startswith("engine"):
            time.sleep(0.01)

        run.explorer.close()

        with pytest.raises(CancelledError):
            evaluating.result(LIMIT_S)
