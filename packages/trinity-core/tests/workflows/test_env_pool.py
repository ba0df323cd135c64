"""Environments in processes that are handed from run to run."""

from __future__ import annotations

import os
from typing import ClassVar

import pytest
from trinity.common.config import Config
from trinity.common.outcome import Outcome
from trinity.common.workflows import MultiTurnWorkflow
from trinity.common.workflows.env_pool import EnvPool, end_free_environments, shared_pool
from trinity.common.workflows.env_process import EnvProcess
from trinity.errors import EnvError
from trinity.explorer.requests import requests_of
from trinity.explorer.scheduler_builder import build_scheduler
from trinity.extend import get_manager
from trinity_testing.builders import a_task
from trinity_testing.check import CheckContext, Skipped
from trinity_testing.checks.workflow import checks as workflow_checks
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

TARGET = "a_small_env:Counter"


@pytest.fixture
def pool():
    made = EnvPool(TARGET, timeouts={"step": 2.0})
    yield made
    made.close()


def test_a_free_process_that_has_the_game_is_preferred(pool) -> None:
    one, two = pool.lease("hall"), pool.lease("kitchen")
    pids = [lease.step("go")[3]["pid"] for lease in (one, two)]
    one.close()
    two.close()

    again = pool.lease("hall")

    assert again.step("go")[3]["pid"] == pids[0]
    assert again.reset()[1] == {"loads": 1}
    other = pool.lease("attic")
    assert other.reset() == ("You are in attic.", {"loads": 2})
    again.close()
    other.close()
    assert pool.num_free == 2


@pytest.mark.parametrize("trouble", ["raise", "hang", "crash"])
def test_an_environment_that_failed_is_replaced(trouble, pool, is_running, until) -> None:
    with pool.lease("hall") as env:
        pid = env.step("go")[3]["pid"]
        with pytest.raises(EnvError):
            env.step(trouble)

    assert until(lambda: not is_running(pid))
    assert pool.num_free == 0
    with pool.lease("hall") as env:
        assert env.step("go")[3]["pid"] != pid


def test_a_process_that_was_killed_while_free_is_replaced(pool, is_running, until) -> None:
    with pool.lease("hall") as env:
        pid = env.step("go")[3]["pid"]
    os.kill(pid, 9)
    assert until(lambda: not is_running(pid))

    with pool.lease("hall") as env:
        assert env.step("go")[3]["pid"] != pid


def test_a_lease_that_is_forgotten_is_killed_and_one_given_back_is_refused(
    pool, is_running, until
) -> None:
    pid = pool.lease("hall").step("go")[3]["pid"]
    assert until(lambda: not is_running(pid))

    env = pool.lease("hall")
    env.close()
    env.close()
    with pytest.raises(EnvError, match="given back"):
        env.step("go")
    with pytest.raises(EnvError, match="no such game"):
        pool.lease("no such game")


def test_a_closed_pool_lets_its_environments_close_and_gives_no_more(
    pool, tmp_path, is_running
) -> None:
    file = tmp_path / "game"
    free, taken = pool.lease(str(file)), pool.lease(str(file))
    pid = taken.step("go")[3]["pid"]
    free.close()

    pool.close()

    assert file.read_text() == "closed\n"
    with pytest.raises(EnvError, match="are closed"):
        pool.lease()
    taken.close()
    assert file.read_text() == "closed\n" * 2
    assert not is_running(pid)


def test_environments_of_the_same_arguments_share_a_pool() -> None:
    one = shared_pool(TARGET, arguments={"size": 2})
    try:
        assert shared_pool(TARGET, arguments={"size": 2}) is one
        assert shared_pool(TARGET, arguments={"size": 3}) is not one
    finally:
        one.close()
    assert shared_pool(TARGET, arguments={"size": 2}) is not one


def test_the_end_of_a_run_ends_free_environments_and_the_next_one_starts_others(is_running) -> None:
    pool = shared_pool(TARGET)
    with pool.lease("hall") as free, pool.lease("attic") as taken:
        pids = [lease.step("go")[3]["pid"] for lease in (free, taken)]
        free.close()
        end_free_environments()

        assert [is_running(pid) for pid in pids] == [False, True]
        assert taken.step("go")[0] == "GO"
        assert pool.lease("hall").reset()[1] == {"loads": 1}
    pool.close()


def test_environments_that_hang_when_they_close_hold_up_nobody_for_long(
    monkeypatch, is_running
) -> None:
    asked = []
    close = EnvProcess.close
    monkeypatch.setattr(EnvProcess, "close", lambda self: (asked.append(self.pid), close(self)))
    monkeypatch.setattr("trinity.common.workflows.env_pool.CLOSING_S", 0.2)
    pool = EnvPool("a_small_env:HangsAtTheEnd", timeouts={"close": 0.3})
    leases = [pool.lease() for _ in range(3)]
    pids = [lease.call("pid") for lease in leases]
    for lease in leases:
        lease.close()

    pool.close()

    assert len(asked) == 1  # after that the time is over: the others are killed
    assert not any(map(is_running, pids))


class InAProcess(MultiTurnWorkflow):
    """Plays a game of the pool, one turn."""

    conformance_args: ClassVar = {"raw_task": {"question": "hall"}, "answers": ["go"]}

    def run(self):
        self.env = shared_pool(TARGET).lease("hall")
        seen, _ = self.env.reset()
        memory = [{"role": "user", "content": seen}]
        memory.append({"role": "assistant", "content": self.get_model_response_text(memory)})
        reward = self.env.step(memory[-1]["content"])[1]
        return [self.process_messages_to_experience(memory, reward)]

    def close(self):
        if hasattr(self, "env"):
            self.env.close()


@pytest.fixture
def leased():
    yield shared_pool(TARGET)
    shared_pool(TARGET).close()


@pytest.mark.parametrize("check", workflow_checks, ids=lambda check: check.id)
def test_a_workflow_with_such_an_environment_passes_the_kit(check, leased) -> None:
    component = get_manager().find("workflow", InAProcess)

    try:
        finding = check.function(component, CheckContext(manager=get_manager()))
    except Skipped:
        return

    assert finding is None or finding.severity == "warning", finding


class KeepsIt(InAProcess):
    """Leases its environment once and takes it along from run to run."""

    can_reset = True
    pids: ClassVar[list[int]] = []
    dies_after: ClassVar[int | None] = None

    def __init__(self, **given):
        super().__init__(**given)
        self.env = shared_pool(TARGET).lease("hall")

    def run(self):
        memory = [{"role": "user", "content": self.env.reset()[0]}]
        memory.append({"role": "assistant", "content": self.get_model_response_text(memory)})
        _, reward, _, info = self.env.step(memory[-1]["content"])
        self.pids.append(info["pid"])
        if len(self.pids) == self.dies_after:
            os.kill(info["pid"], 9)
        return [self.process_messages_to_experience(memory, reward)]


@pytest.mark.parametrize(("dies_after", "num_processes"), [(None, 1), (2, 2)])
def test_an_environment_may_be_kept_from_run_to_run(
    dies_after, num_processes, leased, monkeypatch, is_running
) -> None:
    monkeypatch.setattr(KeepsIt, "pids", [])
    monkeypatch.setattr(KeepsIt, "dies_after", dies_after)
    engine = ScriptedEngine("go", repeat=True)
    config = Config()
    config.explorer.runner_per_model = config.explorer.max_retry_times = 1
    scheduler = build_scheduler(config, engines=[engine], model=model_over(engine))
    task = a_task(workflow=KeepsIt, repeat_times=4)

    results = scheduler.run(requests_of(task, batch="1", number=0, max_repeat_times=None))
    scheduler.close()

    assert [result.failure for result in results] == [None] * 4
    assert [len(r.retried) for r in results] == [0, 0, 1 if dies_after else 0, 0]
    assert len(set(KeepsIt.pids)) == num_processes
    assert not any(map(is_running, KeepsIt.pids))


@pytest.mark.parametrize("action", ["hang", "crash", "raise"])
def test_the_run_goes_on_without_the_environment_that_failed(action, leased, until) -> None:
    engine = ScriptedEngine("go", "go", action, "go", repeat=True)
    config = Config()
    config.explorer.max_retry_times = 0
    config.explorer.max_timeout = 2.0 if action == "hang" else 60.0
    config.explorer.runner_per_model = 1
    scheduler = build_scheduler(config, engines=[engine], model=model_over(engine))
    task = a_task(workflow=InAProcess, repeat_times=4)

    results = scheduler.run(requests_of(task, batch="1", number=0, max_repeat_times=None))
    num_free = until(lambda: leased.num_free == 1)
    scheduler.close()

    outcome = Outcome.TIMEOUT if action == "hang" else Outcome.ENV_ERROR
    assert [r.failure.outcome if r.failure else None for r in results] == [
        None,
        None,
        outcome,
        None,
    ]
    assert num_free
    assert leased.num_free == 0  # the run is over
