"""What a user reads of runs that failed."""

from __future__ import annotations

import itertools
import re
import threading

from trinity.common.experience import Experience
from trinity.common.outcome import Outcome
from trinity.common.workflows import RewardPropagationWorkflow, Workflow
from trinity.errors import EnvError, ModelError
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

    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("step 1: 2 runs failed and are left out:")
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
    [record] = caplog.records
    text = re.sub(r"workflow '\S+' \(your class \S+\)", "workflow <W> (<P>)", record.getMessage())
    golden(re.sub(rf"{re.escape(__file__)}:\d+", "<TEST>:<LINE>", text), "runs_made_again")


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
