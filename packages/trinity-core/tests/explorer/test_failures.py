"""A failed run is data: typed, counted, never trained on."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
import threading

import pytest
from trinity.common.config import FormatConfig
from trinity.common.experience import Experience
from trinity.common.outcome import Outcome
from trinity.common.workflows import Workflow
from trinity.errors import DataError, EnvError, RunFailedError, UnknownComponentError
from trinity.explorer.event_loop import EventLoopThread
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine


class Good(Workflow):
    def run(self):
        return [Experience(tokens=[1, 2, 3], prompt_length=1, reward=1.0)]


def a_workflow(run, base=Good):
    return type("Wf", (base,), {"run": run, "__module__": "my_workflows", "__qualname__": "Wf"})


def wrong_lengths(self):
    experience = Good.run(self)[0]
    experience.logprobs = [0.0, 0.0, 0.0]
    return [experience]


def with_reward(reward):
    return lambda self: [Experience(tokens=[1, 2, 3], reward=reward)]


def with_metrics(metrics):
    return lambda self: [Experience(tokens=[1, 2, 3], reward=1.0, metrics=metrics)]


def raising(error):
    def run(self):
        raise error

    return run


@pytest.mark.parametrize(
    ("name", "run", "outcome"),
    [
        ("returns_none", lambda self: None, Outcome.WORKFLOW_ERROR),
        ("returns_an_empty_list", lambda self: [], Outcome.WORKFLOW_ERROR),
        ("returns_no_experiences", lambda self: ["text"], Outcome.WORKFLOW_ERROR),
        ("returns_wrong_lengths", wrong_lengths, Outcome.WORKFLOW_ERROR),
        ("returns_nan_reward", with_reward(math.nan), Outcome.WORKFLOW_ERROR),
        ("returns_no_reward", with_reward(None), Outcome.WORKFLOW_ERROR),
        ("returns_a_text_as_reward", with_reward("good"), Outcome.WORKFLOW_ERROR),
        ("returns_a_text_as_metric", with_metrics({"mood": "good"}), Outcome.WORKFLOW_ERROR),
        ("raises", raising(KeyError("question")), Outcome.WORKFLOW_ERROR),
        ("env_fails", raising(EnvError("the shop is closed")), Outcome.ENV_ERROR),
        ("exits", raising(SystemExit(3)), Outcome.WORKFLOW_ERROR),
    ],
)
def test_a_run_that_goes_wrong_stops_with_what_where_and_remedy(world, golden, name, run, outcome):
    made = world(a_task(workflow=a_workflow(run)))

    with pytest.raises(RunFailedError) as caught:
        made.step()

    message = str(caught.value)
    golden(_without_line_numbers(message), f"workflow_{name}")
    assert f"  {outcome.value}: workflow" in message
    assert made.sink.batches == []


def test_an_engine_that_fails_is_a_model_error(world):
    made = world(
        a_task(workflow="math_workflow"),
        engine=ScriptedEngine(fails_at=0),
        max_failed_ratio=1.0,
    )

    (failure,) = made.step().failures

    assert failure.outcome is Outcome.MODEL_ERROR
    assert failure.workflow == "math_workflow"
    assert failure.plugin.startswith("trinity-core ")


def test_the_place_in_the_workflows_own_file_is_named(world):
    def run(self):
        return math.sqrt(-1)

    made = world(a_task(workflow=a_workflow(run)), max_failed_ratio=1.0)

    (failure,) = made.step().failures

    assert failure.where.partition(":")[0] == __file__
    assert failure.message.startswith("ValueError: ")


def exits_in_async(error):
    async def run_async(self):
        raise error

    return type("Wf", (Workflow,), {"run_async": run_async, "__module__": "my_workflows"})


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit()])
def test_sys_exit_while_a_workflow_awaits_is_a_failure_with_its_place_and_no_hang(world, error):
    made = world(
        a_task(workflow=exits_in_async(error)),
        *(a_task(workflow=Good) for _ in range(2)),
        max_failed_ratio=1.0,
        max_timeout=30,
    )

    (failure,) = made.step().failures

    assert failure.outcome is Outcome.WORKFLOW_ERROR
    assert "sys.exit(" in failure.message
    assert failure.where.partition(":")[0] == __file__


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError("lost"), type("Own", (BaseException,), {})("lost")]
)
def test_an_error_that_is_no_exception_fails_the_rollout_and_not_the_run(world, error):
    made = world(a_task(workflow=a_workflow(raising(error))), max_failed_ratio=1.0)

    (failure,) = made.step().failures

    assert failure.message.endswith(f"{type(error).__name__}: lost")
    assert failure.where.partition(":")[0] == __file__


def raised_from_itself(self):
    try:
        return 1 / 0
    except ZeroDivisionError as error:
        raise error from error


def raised_in_a_circle(self):
    first, second = ValueError("the first"), KeyError("the second")
    first.__cause__, second.__cause__ = second, first
    raise first


@pytest.mark.parametrize(
    ("run", "message"),
    [(raised_from_itself, "ZeroDivisionError: "), (raised_in_a_circle, "ValueError: the first")],
)
def test_an_error_that_is_its_own_cause_fails_the_rollout_at_once(world, run, message):
    made = world(a_task(workflow=a_workflow(run)), max_failed_ratio=1.0, max_timeout=10)

    (failure,) = made.step().failures

    assert failure.outcome is Outcome.WORKFLOW_ERROR
    assert failure.message.startswith(message)
    assert failure.where.partition(":")[0] == __file__


class UnreadableError(Exception):
    def __str__(self):
        raise AttributeError("detail")


def test_an_error_whose_text_cannot_be_made_fails_the_rollout_and_not_the_run(world):
    made = world(a_task(workflow=a_workflow(raising(UnreadableError()))), max_failed_ratio=1.0)

    (failure,) = made.step().failures

    assert failure.message == "UnreadableError: <exception str() failed>"


def test_ctrl_c_in_a_workflow_still_ends_the_run(world):
    made = world(a_task(workflow=a_workflow(raising(KeyboardInterrupt()))), max_failed_ratio=1.0)

    with pytest.raises(KeyboardInterrupt):
        made.step()


def test_failures_that_differ_in_an_address_are_alike(world):
    def run(self):
        raise ValueError(f"no score: {object()!r}")

    made = world(*(a_task(workflow=a_workflow(run)) for _ in range(3)))

    with pytest.raises(RunFailedError, match="and 2 more runs alike"):
        made.step()


def test_a_workflow_that_blocks_the_event_loop_is_told_once_with_a_remedy(caplog, monkeypatch):
    monkeypatch.setattr("trinity.explorer.event_loop._LOOP_ANSWERS_WITHIN_S", 0.01)
    loop, release, began = EventLoopThread(), threading.Event(), threading.Semaphore(0)

    async def blocks():
        began.release()
        release.wait(60)

    for _ in range(3):
        loop.submit(blocks())
        assert began.acquire(timeout=60)
        assert loop.replace_if_stuck()
    release.set()
    loop.close()

    (told,) = [r.getMessage() for r in caplog.records if "blocks the event loop" in r.getMessage()]
    assert "asyncio.to_thread" in told


def test_a_run_that_hangs_is_given_up_and_its_thread_is_left(world, golden):
    release = threading.Event()
    made = world(
        a_task(workflow=a_workflow(lambda self: release.wait(60))),
        max_timeout=0.2,
        runner_per_model=1,
    )

    with pytest.raises(RunFailedError) as caught:
        made.step()

    golden(_without_line_numbers(str(caught.value)), "workflow_hangs")
    hung = [t for t in threading.enumerate() if t.name.startswith("trinity-hung-my_workflows")]
    assert len(hung) == 1
    assert "Wf" in hung[0].name
    assert hung[0].daemon
    release.set()


def test_others_go_on_while_one_hangs_and_the_next_step_is_whole(world):
    release = threading.Event()
    is_first = [True]

    def run(self):
        if self.task.raw_task["question"] == "hang" and is_first:
            is_first.clear()
            release.wait(60)
        return Good.run(self)

    cls = a_workflow(run)
    tasks = [
        a_task("hang", workflow=cls, repeat_times=3),
        a_task("go", workflow=cls, repeat_times=3),
    ]
    made = world(*tasks, *tasks, batch_size=2, max_timeout=2, runner_per_model=1)

    first, second = made.step(1), made.step(2)

    assert [f.outcome for f in first.failures] == [Outcome.TIMEOUT]
    assert first.num_experiences == 5
    assert first.metrics["rollout/hung_threads"] == 1.0
    assert first.metrics["rollout/failed_runs/timeout"] == 1.0
    assert second.num_experiences == 6
    release.set()


def test_a_workflow_that_awaits_for_ever_is_cancelled(world):
    cancelled = threading.Event()

    class Waits(Workflow):
        async def run_async(self):
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.set()

    made = world(a_task(workflow=Waits), max_timeout=0.2, max_failed_ratio=1.0)

    (failure,) = made.step().failures

    assert failure.outcome is Outcome.TIMEOUT
    assert cancelled.wait(60)


def test_a_workflow_that_blocks_the_loop_does_not_stop_the_others(world):
    release = threading.Event()

    class Blocks(Workflow):
        async def run_async(self):
            if self.task.raw_task["question"] == "block":
                release.wait(60)
            return Good.run(self)

    tasks = [a_task("block", workflow=Blocks), a_task("go", workflow=Blocks)]
    made = world(*tasks, max_timeout=2, runner_per_model=1)

    result = made.step()

    assert [f.outcome for f in result.failures] == [Outcome.TIMEOUT]
    assert result.num_experiences == 1
    release.set()


@pytest.mark.parametrize(
    "where",
    ["thread", *(pytest.param(one, marks=pytest.mark.acceptance) for one in ("loop", "executor"))],
)
def test_the_program_keeps_its_exit_code_beside_what_hangs_in_torch(where):
    program = f"""
import asyncio, sys, threading, torch
import trinity.cli.main
from trinity.cli import program
from trinity.explorer.event_loop import EventLoopThread
from trinity.explorer.scheduler import Slot

began = threading.Event()

def hang():
    while True:
        torch.ones(64, 64) @ torch.ones(64, 64)
        began.set()

async def hang_async():
    hang()

def main():
    if "{where}" != "thread":
        is_stuck = "{where}" == "loop"
        loop = EventLoopThread()
        awaited = loop.submit(hang_async() if is_stuck else asyncio.to_thread(hang))
        began.wait(60)
        awaited.cancel()
        assert not is_stuck or loop.replace_if_stuck()
        loop.close()
    else:
        slot = Slot("trinity-run-1")
        slot.start(hang)
        began.wait(60)
        slot.leave("a-0-0")
    print("said", end="")
    sys.exit(3)

trinity.cli.main.main = main
program.program()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )

    assert (ended.returncode, ended.stdout) == (3, "said"), ended.stderr


def test_a_run_is_tried_again_with_the_number_of_the_attempt(world):
    attempts = []

    class Flaky(Workflow):
        def run(self):
            (response,) = self.model.chat([{"role": "user", "content": "?"}])
            attempts.append(len(attempts) + 1)
            if len(attempts) < 3:
                raise EnvError("not yet")
            response.reward = 1.0
            return [response]

    made = world(a_task(workflow=Flaky), max_retry_times=2)

    result = made.step()

    assert result.failures == ()
    assert result.metrics["rollout/retried_runs"] == 1.0
    keys = [exchange.request.key for exchange in made.engine.exchanges]
    assert [(key.attempt, key.draw) for key in keys] == [(1, 1), (2, 2), (3, 3)]


def test_a_run_that_took_too_long_is_drawn_again_as_it_was(world):
    is_over, attempts = threading.Event(), []

    class Late(Workflow):
        def run(self):
            (response,) = self.model.chat([{"role": "user", "content": "?"}])
            attempts.append(1)
            if len(attempts) == 1:
                is_over.wait(20)
            response.reward = 1.0
            return [response]

    made = world(a_task(workflow=Late), max_timeout=0.5, max_retry_times=1)

    result = made.step()
    is_over.set()

    assert result.metrics["rollout/retried_runs/timeout"] == 1.0
    keys = [exchange.request.key for exchange in made.engine.exchanges]
    assert [(key.attempt, key.draw) for key in keys] == [(1, 1), (2, 1)]


def test_attempts_end(world):
    calls = []

    def run(self):
        calls.append(1)
        raise EnvError("never")

    result = world(a_task(workflow=a_workflow(run)), max_retry_times=2, max_failed_ratio=1.0).step()

    assert len(calls) == 3
    assert [f.attempt for f in result.failures] == [3]


def failing_runs(*numbers):
    """Return a workflow whose runs with these numbers fail."""

    def run(self):
        if self.run_id_base in numbers and self.task.raw_task["question"] != "good":
            raise EnvError("no")
        return Good.run(self)

    return a_workflow(run)


def test_a_failed_run_is_dropped_where_two_of_its_group_remain(world):
    made = world(a_task(workflow=failing_runs(0, 2), repeat_times=4))

    result = made.step()

    assert [e.eid.run for e in made.sink.last] == [1, 3]
    assert result.metrics["rollout/failed_runs"] == 2.0
    assert result.metrics["rollout/dropped_groups"] == 0.0


def test_a_group_with_one_run_left_is_dropped_and_another_task_fills_the_step(world):
    tasks = [
        a_task("bad", workflow=failing_runs(0), repeat_times=2),
        a_task("good", workflow=failing_runs(0), repeat_times=2),
        a_task("good", workflow=failing_runs(0), repeat_times=2),
        a_task("good", workflow=failing_runs(0), repeat_times=2),
    ]
    made = world(*tasks, batch_size=2)

    result = made.step()

    assert [e.eid.rid for e in made.sink.last] == ["1/1/0", "1/1/1", "1/2/0", "1/2/1"]
    assert result.metrics["rollout/dropped_groups"] == 1.0
    assert made.tasks.position == 3


def test_a_step_ends_short_where_no_task_is_left(world):
    tasks = [
        a_task("bad", workflow=failing_runs(0), repeat_times=2),
        a_task("good", workflow=failing_runs(0), repeat_times=2),
    ]
    made = world(*tasks)

    assert made.step().num_experiences == 2
    with pytest.raises(StopIteration):
        made.step(2)


def test_a_step_is_not_refilled_for_ever(world):
    tasks = [a_task("bad", workflow=failing_runs(0), repeat_times=2) for _ in range(9)]
    made = world(*tasks, batch_size=2, max_failed_ratio=1.0)

    assert made.step().num_experiences == 0
    assert made.tasks.position == 4


def test_half_of_the_runs_may_fail_and_one_more_may_not(world):
    half = world(a_task(workflow=failing_runs(0, 1), repeat_times=4))
    assert half.step().num_experiences == 2

    more = world(a_task(workflow=failing_runs(0, 1, 2), repeat_times=4))
    with pytest.raises(RunFailedError, match="3 of 4 rollouts failed"):
        more.step()


def test_on_failed_run_fail_stops_at_the_first(world):
    made = world(
        a_task(workflow=failing_runs(1), repeat_times=4),
        on_failed_run="fail",
        max_retry_times=2,
        runner_per_model=1,
    )

    with pytest.raises(RunFailedError, match=r"explorer\.on_failed_run is fail.*run 1"):
        made.step()


def test_what_every_run_would_meet_stops_at_once(world):
    row_without_key = a_task(
        workflow="math_workflow", format_args=FormatConfig(prompt_key="quesstion"), repeat_times=2
    )
    made = world(row_without_key, max_retry_times=2)

    with pytest.raises(DataError, match="Did you mean 'question'"):
        made.step()
    assert made.engine.num_open_runs == 0


def test_a_workflow_that_nobody_has_is_named(world):
    with pytest.raises(UnknownComponentError, match="Did you mean 'math_workflow'"):
        world(a_task(workflow="math_workflw")).step()


def test_the_engine_hears_of_every_end(world):
    made = world(a_task(workflow=failing_runs(0, 2), repeat_times=4), max_retry_times=1)
    made.step()

    assert made.engine.num_open_runs == 0


def test_a_failed_instance_is_not_reused(world):
    instances = []

    class Breaks(Good):
        can_reset = True

        def run(self):
            instances.append(id(self))
            if len(instances) == 1:
                raise EnvError("broken for good")
            return super().run()

    kept = []
    original = Breaks.__init__

    def keep(self, **kwargs):
        kept.append(self)
        original(self, **kwargs)

    Breaks.__init__ = keep
    world(a_task(workflow=Breaks, repeat_times=3), runner_per_model=1).step()

    assert len(kept) == 2
    assert len(set(instances)) == 2


def _without_line_numbers(message):
    return re.sub(rf"{re.escape(__file__)}:\d+", "<TEST>:<LINE>", message)
