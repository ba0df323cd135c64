"""Environments that die, hang, raise or are late in mid-episode: the run goes on and says so.

The golden texts are listed in ``test_bad_input.py``.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HOUSE = '''
import json
import os
import signal
import time
from pathlib import Path

from trinity.common.workflows import WORKFLOWS, MultiTurnWorkflow
from trinity.common.workflows.env_pool import shared_pool

HARM = json.loads(os.environ["HARM"])  # by question
HOUSES = Path(os.environ["HOUSES"])  # a line for each episode that began


class House:
    """An environment for a process of its own."""

    def __init__(self):
        if "import" in HARM.values():
            import a_module_that_nobody_has

    def reset(self):
        if "reset" in HARM.values():
            raise RuntimeError("the house is on fire")
        with HOUSES.open("a") as file:
            file.write(f"{os.getpid()}\\n")
        return "You are in a house.", {"pid": os.getpid()}

    def step(self, action):
        if action == "hang":
            time.sleep(1000)
        if action == "raise":
            raise ValueError("the door is locked")
        return f"You did {action[:4]!r}.", float(len(action) % 2), False, {"pid": os.getpid()}

    def dream(self):
        time.sleep(1000)

    def close(self):
        if "close" in HARM.values():
            raise RuntimeError("the door does not close")


@WORKFLOWS.register_module("house")
class HouseWorkflow(MultiTurnWorkflow):
    """Three turns; the second of the last run of a task comes to harm."""

    env = None

    def run(self):
        self.env = shared_pool(f"{__file__}:House", timeouts={"step": 3.0}).lease()
        seen, info = self.env.reset()
        memory = []
        for turn in range(3):
            memory.append({"role": "user", "content": seen})
            memory.append({"role": "assistant", "content": self.get_model_response_text(memory)})
            harm = HARM.get(self.task.task_desc) if (turn, self.run_id_base) == (1, 2) else None
            if harm == "kill once" and self.is_first():
                harm = "kill"
            if harm == "kill":
                os.kill(info["pid"], signal.SIGKILL)
            if harm == "dream":
                self.env.call("dream")
            if harm == "stop":
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1.5)  # the system merges signals that come at once
                os.kill(os.getpid(), signal.SIGINT)
            said = harm if harm in {"hang", "raise"} else memory[-1]["content"]
            seen, reward, _, _ = self.env.step(said)
        return [self.process_messages_to_experience(memory, reward)]

    def is_first(self):
        try:
            HOUSES.with_suffix(".once").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def close(self):
        if self.env is not None:
            self.env.close()
'''


@pytest.fixture
def of_houses(config_dict, taskset, write_yaml, plugin_dir, tmp_path):
    """Return a function that gives the command and the variables of one step in four houses."""
    config_dict["algorithm"]["repeat_times"] = 3
    config_dict["model"]["max_model_len"] = 256
    config_dict["buffer"]["total_steps"] = 1
    config_dict["explorer"] |= {"max_retry_times": 0, "max_timeout": 10, "runner_per_model": 4}
    taskset["default_workflow_type"] = "house"
    taskset.pop("default_reward_fn_type")
    folder = plugin_dir(HOUSE, "house.py")

    def command(name="tiny", **harm):
        questions = {f"{place} + 1 =": what.replace("_", " ") for what, place in harm.items()}
        path = write_yaml(config_dict | {"name": name}, f"{name}.yaml")
        env = {"HARM": json.dumps(questions), "HOUSES": str(tmp_path / f"{name}.houses")}
        arguments = ["run", "--local", "--config", path, "--plugin-dir", folder]
        return arguments, env

    return command


@pytest.fixture
def visited(of_houses, trinity):
    """Return a function that runs one step in four houses in this process."""

    def visit(name="tiny", **harm):
        arguments, env = of_houses(name, **harm)
        return trinity(*arguments, **env)

    return visit


@pytest.fixture
def pids(tmp_path):
    """Return a function that gives the processes of a run's episodes."""
    return lambda name="tiny": [int(p) for p in (tmp_path / f"{name}.houses").read_text().split()]


def are_gone(pids, *, within_s=10.0):
    """Return whether no process of them is left, or only as long as it takes to die."""
    limit = time.monotonic() + within_s
    while left := [pid for pid in pids if is_running(pid)]:
        if time.monotonic() > limit:
            return not left
        time.sleep(0.05)
    return True


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def rolled_out(run_dir, name):
    """Return the tokens and rewards of each run by its number."""
    lines = (run_dir.with_name(name) / "buffer" / "explorer_output.jsonl").read_text().splitlines()
    rows = map(json.loads, lines)
    return {(row["eid"]["task"], row["eid"]["run"]): (row["tokens"], row["reward"]) for row in rows}


def told(text):
    """Return the warnings and what belongs to them, without the numbers of lines."""
    kept = [line for line in text.splitlines() if line.startswith(("warning: ", "  "))]
    return re.sub(r"\.py:\d+", ".py:<LINE>", "\n".join(kept))


@pytest.mark.acceptance
def test_runs_whose_environments_come_to_harm_are_left_out_and_the_others_are_as_ever(
    visited, pids, run_dir, golden, tmp_path, status_of
) -> None:
    harmed = visited(kill=0, hang=1, **{"raise": 2}, dream=3)
    assert are_gone(pids())
    whole = visited("whole")

    assert (harmed.code, whole.code) == (0, 0), harmed.stderr + whole.stderr
    golden(told(harmed.stdout), "run_environments_die", TMP=tmp_path)
    assert told(whole.stdout) == ""
    kept, every = rolled_out(run_dir, "tiny"), rolled_out(run_dir, "whole")
    assert len(every) == 12
    assert kept == {key: every[key] for key in every if key[1] != 2}
    metrics = (run_dir / "monitor" / "metrics.jsonl").read_text().splitlines()
    [explored] = [row for row in map(json.loads, metrics) if row["role"] == "explorer"]
    assert explored["rollout/failed_runs/env_error"] == 3.0
    assert explored["rollout/failed_runs/timeout"] == 1.0
    assert status_of()["trained_experiences"] == 8
    assert len(pids()) == len(pids("whole")) == 12
    assert len(set(pids())) > len(set(pids("whole")))  # others took the places of those that died
    assert are_gone(pids("whole"))


@pytest.mark.acceptance
def test_a_run_whose_environment_was_killed_once_is_made_again_and_said_once(
    visited, config_dict, golden, tmp_path, status_of
) -> None:
    config_dict["explorer"]["max_retry_times"] = 1

    ended = visited(kill_once=0)

    assert ended.code == 0, ended.stderr
    golden(told(ended.stdout), "run_environment_killed_once", TMP=tmp_path)
    assert status_of()["trained_experiences"] == 12


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        pytest.param("reset", "run_environment_raises", marks=pytest.mark.acceptance),
        ("import", "run_environment_needs"),
    ],
)
def test_what_no_run_is_spared_stops_with_one_message(
    harm, text, visited, golden, tmp_path
) -> None:
    ended = visited(**{harm: 9})

    assert ended.code == 1
    said = re.sub(r"\.py:\d+", ".py:<LINE>", ended.stderr)
    golden(re.sub(r"for \S+/python\S*,", "for <PYTHON>,", said), text, TMP=tmp_path)


@pytest.mark.acceptance
def test_an_environment_that_cannot_close_is_told_once_and_stops_nothing(
    visited, pids, golden, tmp_path
) -> None:
    ended = visited(close=9)

    assert ended.code == 0, ended.stderr
    golden(told(ended.stdout), "run_environment_cannot_close", TMP=tmp_path)
    assert are_gone(pids())


@pytest.mark.acceptance
def test_a_run_that_is_stopped_at_once_leaves_no_environment(
    of_houses, trinity_forked, pids, status_of
) -> None:
    arguments, env = of_houses(stop=0, hang=1)

    ended = trinity_forked(*arguments, **env)

    assert ended.code == 130, ended.stderr
    assert "Traceback" not in ended.stderr
    assert status_of()["status"] == "interrupted"
    assert pids()
    assert are_gone(pids())
