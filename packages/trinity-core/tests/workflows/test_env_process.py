"""An environment in a process of its own: it may do what it likes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest
from trinity.common.config import Config
from trinity.common.outcome import Outcome
from trinity.common.workflows import MultiTurnWorkflow
from trinity.common.workflows.env_pool import EnvPool, shared_pool
from trinity.common.workflows.env_process import EnvProcess
from trinity.errors import EnvError, PluginError
from trinity.explorer.local import build_scheduler
from trinity.explorer.order import orders_of
from trinity.extend import get_manager
from trinity.extend.checks import CheckContext, Skipped
from trinity_testing.builders import a_task
from trinity_testing.checks.workflow import checks as workflow_checks
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

HERE = Path(__file__).parent
TARGET = "a_small_env:Counter"


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    monkeypatch.syspath_prepend(HERE)


@pytest.fixture
def process():
    made = []

    def make(target=TARGET, **options):
        made.append(EnvProcess(target, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def pool():
    made = EnvPool(TARGET, timeouts={"step": 0.5})
    yield made
    made.close()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition, *, within_s=10.0) -> bool:
    limit = time.monotonic() + within_s
    while not condition() and time.monotonic() < limit:
        time.sleep(0.01)
    return condition()


def test_methods_are_called_there_and_what_it_prints_is_no_answer(process) -> None:
    env = process(arguments={"size": 2})
    env.call("load", "the hall")

    assert env.call("reset") == ("You are in the hall.", {"loads": 1})
    assert env.call("step", "go")[:3] == ("GO", 0.5, False)
    assert env.call("step", action="go")[2:] == (True, {"pid": env.pid})
    assert env.pid != os.getpid()


def test_a_class_may_be_named_by_its_file(process, tmp_path) -> None:
    (tmp_path / "neighbour.py").write_text("WORD = 'hello'\n")
    source = "from neighbour import WORD\nclass Env:\n    def reset(self):\n        return WORD\n"
    (tmp_path / "house.py").write_text(source)

    assert process(f"{tmp_path / 'house.py'}:Env").call("reset") == "hello"


def test_large_values_travel_both_ways(process) -> None:
    data = os.urandom(3_000_000)

    assert process().call("echo", data) == data


@pytest.mark.parametrize("trouble", ["raise", "hang", "spin", "exit", "crash", "quit"])
def test_whatever_it_does_is_an_EnvError(trouble, process, golden) -> None:
    env = process(timeouts={"step": 0.3})

    with pytest.raises(EnvError) as caught:
        env.call("step", trouble)

    golden(re.sub(r"\.py:\d+", ".py:<LINE>", str(caught.value)), f"env_{trouble}", HERE=HERE)
    assert env.is_alive == (trouble in {"raise", "quit"})


def test_a_process_that_was_ended_says_so(process) -> None:
    env = process()
    env.close()
    env.close()

    assert not is_running(env.pid)
    with pytest.raises(EnvError, match="was ended"):
        env.call("reset")


def test_what_cannot_be_imported_stops_the_run_and_what_raises_the_rollout(process) -> None:
    targets = ["no_such_module:Env", "a_small_env:NoSuchClass", "a_small_env:NeedsMore"]
    for target in [*targets, "no_such_file.py:Env"]:
        with pytest.raises(PluginError, match="cannot import what it needs"):
            process(target)
    with pytest.raises(EnvError, match=r"RuntimeError: no data.*It printed: cannot find my data"):
        process("a_small_env:Fails")


def test_what_cannot_travel_is_an_error_and_the_process_stays(process) -> None:
    env = process()

    with pytest.raises(EnvError, match=r"what it is given cannot travel: .*lambda"):
        env.call("echo", lambda: 1)
    with pytest.raises(EnvError, match=r"\(unsendable\) raised .*lambda"):
        env.call("unsendable")

    assert env.call("echo", 1) == 1


def test_a_close_from_another_thread_ends_a_call_that_hangs(process) -> None:
    env = process()
    errors = []

    def call():
        try:
            env.call("step", "hang")
        except EnvError as error:
            errors.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.1)
    env.close()
    thread.join(10)

    assert not thread.is_alive()
    assert "was ended while it was asked" in errors[0]


PARENT = """
    import sys, threading, time
    from trinity.common.workflows.env_process import EnvProcess
    idle, hangs, spins = (EnvProcess("a_small_env:Counter") for _ in range(3))
    for env, action in ((hangs, "hang"), (spins, "spin")):
        threading.Thread(target=env.call, args=("step", action), daemon=True).start()
    time.sleep(0.3)
    print(idle.pid, hangs.pid, spins.pid, flush=True)
    {end}
"""


@pytest.mark.parametrize("end", ["time.sleep(60)", "import os; os._exit(1)", "sys.exit()"])
def test_a_child_ends_with_its_parent_however_that_ends(end) -> None:
    program = textwrap.dedent(PARENT).replace("{end}", end)
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )
    with parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 3
        if end == "time.sleep(60)":
            assert all(map(is_running, pids))
            parent.kill()

        assert until(lambda: not any(map(is_running, pids)))


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
def test_an_environment_that_failed_is_replaced(trouble, pool) -> None:
    with pool.lease("hall") as env:
        pid = env.step("go")[3]["pid"]
        with pytest.raises(EnvError):
            env.step(trouble)

    assert until(lambda: not is_running(pid))
    assert pool.num_free == 0
    with pool.lease("hall") as env:
        assert env.step("go")[3]["pid"] != pid


def test_a_process_that_was_killed_while_free_is_replaced(pool) -> None:
    with pool.lease("hall") as env:
        pid = env.step("go")[3]["pid"]
    os.kill(pid, 9)
    assert until(lambda: not is_running(pid))

    with pool.lease("hall") as env:
        assert env.step("go")[3]["pid"] != pid


def test_a_lease_that_is_forgotten_is_killed_and_one_given_back_is_refused(pool) -> None:
    pid = pool.lease("hall").step("go")[3]["pid"]
    assert until(lambda: not is_running(pid))

    env = pool.lease("hall")
    env.close()
    env.close()
    with pytest.raises(EnvError, match="given back"):
        env.step("go")
    with pytest.raises(EnvError, match="no such game"):
        pool.lease("no such game")


def test_a_closed_pool_lets_its_environments_close_and_gives_no_more(pool, tmp_path) -> None:
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


@pytest.mark.parametrize("action", ["hang", "crash", "raise"])
def test_the_run_goes_on_without_the_environment_that_failed(action, leased) -> None:
    engine = ScriptedEngine("go", "go", action, "go", repeat=True)
    config = Config()
    config.explorer.max_retry_times = 0
    config.explorer.max_timeout = 2.0 if action == "hang" else 60.0
    config.explorer.runner_per_model = 1
    scheduler = build_scheduler(config, engines=[engine], model=model_over(engine))
    task = a_task(workflow=InAProcess, repeat_times=4)

    results = scheduler.run(orders_of(task, batch="1", number=0, max_repeat_times=None))
    scheduler.close()

    outcome = Outcome.TIMEOUT if action == "hang" else Outcome.ENV_ERROR
    assert [r.failure.outcome if r.failure else None for r in results] == [
        None,
        None,
        outcome,
        None,
    ]
    assert until(lambda: leased.num_free == 1)
