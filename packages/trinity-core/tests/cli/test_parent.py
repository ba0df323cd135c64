"""``trinity run`` waits for the run in a parent: it starts it again, and says how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path

from trinity import starting
from trinity.cli import parent

parent.FIRST_WAIT_S = {wait_s}
parent.stay_behind(["run", "--restart", "2"])


def step_ended(step):
    Path("monitor").mkdir(exist_ok=True)
    with open("monitor/metrics.jsonl", "a") as file:
        file.write(json.dumps({{"step": step, "role": "trainer"}}) + "\\n")


def end(code):
    starting.command_ended(code)
    sys.exit(code)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


starting.program_begins()
starting.tell(restart=2, directory=os.getcwd())
restarts = starting.num_restarts()
{run}
"""
KILLED = "the run was ended by SIGKILL before the end of its first step"


@pytest.fixture
def begun(tmp_path):
    """Return a function that starts a small program in place of a run."""
    started = []

    def begin(run, *, wait_s=0.01):
        program = PROGRAM.format(run=run, wait_s=wait_s)
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def ended(begun):
    def end(run):
        process = begun(run)
        said = process.communicate(timeout=30)[1]
        return process.returncode, said

    return end


def test_a_killed_run_is_started_again_and_its_log_says_so(ended, tmp_path) -> None:
    code, said = ended("kill() if restarts == 0 else end(0)")

    line = f"restart 1 of 2 in 0 s: {KILLED}; it continues from what is saved"
    assert (code, said) == (0, f"{line}\n")
    assert f"WARNING trinity.cli.parent: {line}" in (tmp_path / "trinity.log").read_text()


@pytest.mark.parametrize(
    ("why", "run"),
    [
        ("Ray has lost its head", 'starting.tell(lost="Ray has lost its head")\n    end(1)'),
        ("the run ended with exit code 1 and did not say why", "os._exit(1)"),
        ("the run was ended by SIGSEGV", "os.kill(os.getpid(), signal.SIGSEGV)"),
    ],
)
def test_what_a_supervisor_would_restart_is_restarted(ended, why, run) -> None:
    code, said = ended(f"if restarts == 0:\n    {run}\nend(0)")

    assert code == 0
    assert f"restart 1 of 2 in 0 s: {why} " in said


@pytest.mark.parametrize(
    ("run", "code"),
    [
        ("end(0)", 0),
        ("end(1)", 1),  # a configuration error, or a part that failed
        ("end(2)", 2),
        ("end(130)", 130),
        ("os._exit(130)", 130),  # Ctrl-C while it loads
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_what_ended_as_it_was_told_to_or_cannot_run_is_not_restarted(ended, run, code) -> None:
    assert ended(run) == (code, "")


def test_a_run_that_fails_at_the_same_step_twice_is_not_started_a_third_time(ended) -> None:
    code, said = ended("restarts or step_ended(3)\nkill()")

    assert code == -signal.SIGKILL
    first, last = said.splitlines()
    assert "restart 1 of 2 in 0 s: the run was ended by SIGKILL after train step 3" in first
    assert "not restarted: the run was ended by SIGKILL, and the run had failed after train" in last


def test_a_run_that_comes_further_each_time_is_restarted_as_often_as_asked(ended) -> None:
    code, said = ended("step_ended(restarts)\nkill()")

    assert code == -signal.SIGKILL
    assert [line.split(":")[0] for line in said.splitlines()] == [
        "restart 1 of 2 in 0 s",
        "restart 2 of 2 in 0 s",
        "not restarted",
    ]


@pytest.mark.parametrize(
    "leave",
    [
        "import posix; posix._exit(0)",
        "import ctypes; ctypes.CDLL(None)._exit(0)",
        'os.execv("/bin/true", ["true"])',
    ],
)
def test_a_run_that_leaves_behind_the_back_of_python_has_not_ended_well(ended, leave) -> None:
    code, said = ended(f"starting.tell(restart=0)\n{leave}")

    assert code == 1
    assert "the run has not finished: one of its parts called exit or exec of the system" in said


@pytest.mark.parametrize(
    ("leave", "code", "why"),
    [
        ("import ctypes; ctypes.CDLL(None)._exit(1)", 1, "the run ended with exit code 1 and did"),
        ("kill()", -signal.SIGKILL, "the run was ended by SIGKILL: it was ended from outside"),
    ],
)
def test_a_run_that_could_not_say_why_it_ended_has_one_line_all_the_same(
    ended, leave, code, why
) -> None:
    found, said = ended(f"starting.tell(restart=0)\n{leave}")

    assert found == code
    assert said.startswith(f"Error: {why}")
    assert said.endswith("The same command goes on from what is saved.\n")
    assert said.count("\n") == 1


def test_a_run_that_said_why_before_it_left_has_no_second_line(ended) -> None:
    assert ended("starting.tell(restart=0)\nstarting.leave_hung('Error: hung.')") == (
        1,
        "Error: hung.\n",
    )


WAITS = """
heard = []
signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
print("ready", flush=True)
until = time.monotonic() + 20
while not heard and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.5)
print(len(heard), flush=True)
end(130)
"""


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["to_the_parent", "to_both"])
def test_a_sigterm_reaches_the_run_once_whoever_it_was_sent_to(begun, send) -> None:
    process = begun(WAITS)
    assert process.stdout.readline() == "ready\n"

    send(process.pid, signal.SIGTERM)

    assert process.communicate(timeout=30) == ("1\n", "")
    assert process.returncode == 130


def test_a_killed_parent_takes_the_run_with_it(begun) -> None:
    process = begun("print(os.getpid(), flush=True)\ntime.sleep(60)")
    run = int(process.stdout.readline())

    process.kill()
    process.wait()

    deadline = time.monotonic() + 10
    while _is_alive(run):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_sigterm_before_a_restart_ends_the_command(begun) -> None:
    process = begun("kill()", wait_s=60)
    assert "restart 1 of 2 in 60 s" in process.stderr.readline()

    process.send_signal(signal.SIGTERM)

    said = process.communicate(timeout=10)[1]
    assert said == "stopped at once, before the restart: the same command goes on\n"
    assert process.returncode == 130


def test_other_commands_have_no_parent() -> None:
    program = "import os, sys; before = os.getpid(); from trinity.cli import parent\n"
    program += "parent.stay_behind(sys.argv[1:]); print(os.getpid() == before)"

    for words in ("plugins list", "--plugin-dir run serve", "-P no:run config check run"):
        command = [sys.executable, "-c", program, *words.split()]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert said == "True\n", words
