"""What a user reads of runs that failed."""

from __future__ import annotations

import itertools
import logging
import re
import threading

from trinity.common.experience import Experience
from trinity.common.outcome import Outcome
from trinity.common.workflows import RewardPropagationWorkflow, Workflow
from trinity.errors import EnvError, ModelError
from trinity.explorer.failure import MAX_KINDS, TRACEBACKS
from trinity_testing.builders import a_task


class Good(Workflow):
    def run(self):
        return [Experience(tokens=[1, 2, 3], prompt_length=1, reward=1.0)]


def test_equal_failures_of_a_step_are_one_warning_with_their_number(world, caplog) -> None:
    calls = itertools.count()

    class Sometimes(Good):
        def run(self):
            if next(calls) < 2:
                raise EnvError("the shop is closed")
            return super().run()

    built = world(a_task(workflow=Sometimes, repeat_times=5), max_retry_times=0)

    with caplog.at_level("WARNING"):
        built.step()

    told = [
        record.getMessage() for record in caplog.records if "not trained on" in record.getMessage()
    ]
    assert len(told) == 1
    assert told[0].startswith("step 1: 2 rollouts failed, not trained on:")
    assert told[0].count("the shop is closed") == 1
    assert "(and 1 more run alike)" in told[0]


def test_what_went_well_the_second_time_is_counted_and_told_once(world, caplog, golden) -> None:
    attempts = []

    class SecondTime(Good):
        def run(self):
            attempts.append(1)
            if len(attempts) % 2:
                raise EnvError("the shop is closed")
            return super().run()

    tasks = [a_task(workflow=SecondTime, repeat_times=3) for _ in range(2)]
    built = world(*tasks, batch_size=1, max_retry_times=1, runner_per_model=1)

    with caplog.at_level("WARNING"):
        first, second = built.step(1), built.step(2)

    for result in (first, second):
        assert result.failures == ()
        assert result.metrics["rollout/failed_runs"] == 0.0
        assert result.metrics["rollout/retried_runs/env_error"] == 3.0
    [record] = [record for record in caplog.records if record.name != TRACEBACKS]
    text = re.sub(r"workflow '\S+' \(your class \S+\)", "workflow <W> (<P>)", record.getMessage())
    golden(re.sub(rf"{re.escape(__file__)}:\d+", "<TEST>:<LINE>", text), "runs_made_again")


def test_a_call_that_makes_several_rollouts_counts_as_so_many(world) -> None:
    attempts = []

    class Together(Good):
        can_repeat = True

        def set_repeat_times(self, repeat_times, run_id_base):
            self.repeat_times, self.run_id_base = repeat_times, run_id_base

        def run(self):
            attempts.append(1)
            if len(attempts) == 1:
                raise EnvError("the shop is closed")
            return [Good.run(self)[0] for _ in range(self.repeat_times)]

    metrics = world(a_task(workflow=Together, repeat_times=3), max_retry_times=1).step().metrics

    assert metrics["rollout/retried_runs"] == metrics["rollout/retried_runs/env_error"] == 3.0


def test_a_run_that_was_left_behind_asks_the_engine_no_more(world) -> None:
    goes_on, ended, errors = threading.Event(), threading.Event(), []

    class Late(Workflow):
        def run(self):
            ask = [{"role": "user", "content": "?"}]
            self.model.chat(ask)
            goes_on.wait(30)
            try:
                self.model.chat(ask)
            except ModelError as error:
                errors.append(str(error))
            ended.set()

    built = world(a_task(workflow=Late), max_failed_ratio=1.0, max_timeout=2, max_retry_times=0)
    [failure] = built.step().failures
    goes_on.set()

    assert ended.wait(60)
    assert failure.outcome is Outcome.TIMEOUT
    assert errors == ["the run was left behind: its time was up, or the whole was stopped."]
    assert len(built.engine.exchanges) == 1


def test_the_users_own_file_is_named_not_that_of_a_base_class(world) -> None:
    class Unclear(RewardPropagationWorkflow):
        def step(self, step_num):
            self.model.chat([{"role": "user", "content": "go"}])
            return step_num < 1

        def reward(self, exps):
            return "good"

    class Odd(Unclear):
        def reward(self, exps):
            return 1 / 0

    tasks = [a_task(workflow=cls) for cls in (Unclear, Odd)]
    unclear, odd = world(*tasks, max_failed_ratio=1.0).step().failures

    assert "what reward() returned is 'good'" in unclear.message
    assert unclear.where == ""
    assert odd.where.partition(":")[0] == __file__


def tracebacks_in(caplog):
    records = [record for record in caplog.records if record.name == TRACEBACKS]
    assert all(record.levelno == logging.ERROR for record in records)
    return [record.getMessage() for record in records]


def test_each_failed_attempt_leaves_its_traceback_with_task_and_plugin(world, caplog) -> None:
    class Odd(Workflow):
        def run(self):
            return 1 / 0

    built = world(a_task(workflow=Odd), max_failed_ratio=1.0, max_retry_times=1)
    built.step()

    first, again = tracebacks_in(caplog)
    line, _, text = first.partition("\n")
    assert re.match(r"workflow_error: workflow '\S+Odd' \(your class .*\), task 1/0 \(", line)
    assert "run 0, attempt 1 at " in line
    assert text.startswith("Traceback (most recent call last):\n")
    assert "    return 1 / 0\n" in text
    assert text.endswith("ZeroDivisionError: division by zero")
    assert again.startswith(
        "1 more failed attempts of this step have the same traceback: workflow_error: "
    )


def test_equal_tracebacks_of_a_step_are_written_once_with_their_number(world, caplog) -> None:
    class Full(Workflow):
        def run(self):
            raise EnvError(f"shop {self.task.task_id} is full")  # only the number differs

    built = world(*[a_task(workflow=Full) for _ in range(6)], batch_size=3, max_failed_ratio=1.0)
    built.step(1)

    told = tracebacks_in(caplog)
    assert [text.count("Traceback (most recent call last)") for text in told] == [1, 0, 1, 0]
    assert told[1].startswith("2 more failed attempts of this step have the same traceback")


def test_so_many_tracebacks_of_a_step_are_written_and_no_more(world, caplog) -> None:
    letters = iter("abcdefghijklmnopqrstuvwxyz")

    class Talks(Workflow):
        def run(self):
            raise EnvError(f"the shop says {next(letters)}")

    task = a_task(workflow=Talks, repeat_times=MAX_KINDS + 5)
    built = world(task, max_failed_ratio=1.0)
    built.step()

    told = tracebacks_in(caplog)
    assert len(told) == MAX_KINDS + 1
    assert told[-1].startswith("5 more failed attempts of this step have other tracebacks")


def test_of_a_run_that_did_not_end_the_place_where_it_was_is_written(world, caplog) -> None:
    goes_on = threading.Event()

    class Late(Workflow):
        def run(self):
            goes_on.wait(30)

    built = world(a_task(workflow=Late), max_failed_ratio=1.0, max_timeout=0.5)
    built.step()
    goes_on.set()

    (text,) = tracebacks_in(caplog)
    assert text.startswith("timeout: ")
    assert "\nWhere it was (most recent call last):\n" in text
    assert "goes_on.wait(30)" in text


def test_eight_runs_that_fail_alike_are_one_and_seven_more(world, caplog) -> None:
    class Never(Good):
        can_repeat = True

        def run(self):
            raise EnvError("the shop is closed")

    built = world(a_task(workflow=Never, repeat_times=8), max_failed_ratio=1.0, max_retry_times=0)

    with caplog.at_level("WARNING"):
        built.step()

    assert "(and 7 more runs alike)" in caplog.text
