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

import pytest
from trinity.common.workflows.env_process import EnvProcess
from trinity.errors import BadTaskError, EnvError, PluginError

HERE = Path(__file__).parent
TARGET = "a_small_env:Counter"


@pytest.fixture
def process():
    made = []

    def make(target=TARGET, **options):
        made.append(EnvProcess(target, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


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
    env = process(timeouts={"step": 0.3} if trouble in {"hang", "spin"} else {})

    with pytest.raises(EnvError) as caught:
        env.call("step", trouble)

    golden(re.sub(r"\.py:\d+", ".py:<LINE>", str(caught.value)), f"env_{trouble}", HERE=HERE)
    assert env.is_alive == (trouble in {"raise", "quit"})


def test_a_process_that_was_ended_says_so(process, is_running) -> None:
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


def test_what_can_never_be_done_is_told_from_what_failed(process) -> None:
    env = process()
    with pytest.raises(BadTaskError, match=r"\(load\) raised .*: that is no game of mine"):
        env.call("load", "a game of words")
    with pytest.raises(EnvError, match=r"raised FileNotFoundError: no such game") as caught:
        env.call("load", "no such game")
    assert type(caught.value) is EnvError


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
    thread.join(60)

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
def test_a_child_ends_with_its_parent_however_that_ends(end, is_running, until) -> None:
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


def test_what_the_child_started_ends_with_the_parent_too(is_running, until) -> None:
    program = """
        import time
        from trinity.common.workflows.env_process import EnvProcess
        env = EnvProcess("a_small_env:Counter")
        print(env.pid, env.call("starts"), flush=True)
        time.sleep(60)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )
    with parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()

        assert until(lambda: not any(map(is_running, pids)))


def test_what_close_raises_is_told_once_and_the_process_ends(process, caplog, is_running) -> None:
    for _ in range(2):
        env = process()
        env.call("load", "bad")
        env.close()
        assert not is_running(env.pid)

    [record] = caplog.records
    assert "Counter (close) raised RuntimeError: the game cannot be saved" in record.getMessage()
    assert "No rollout is lost" in record.getMessage()
