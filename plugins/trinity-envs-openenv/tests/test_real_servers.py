"""Servers of the real OpenEnv, in the environment of its own: nox -s openenv."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from trinity.errors import EnvError
from trinity.extend import environment_python
from trinity.extend.environments import missing_environment
from trinity_envs_openenv import server
from trinity_envs_openenv.environment import ENVIRONMENT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(missing_environment(ENVIRONMENT)), reason="trinity plugins setup openenv --environment"
    ),
]
HERE = Path(__file__).parent
ECHO = {"action": {"field": "message"}, "template": "{{ observation.echoed_message }}"}


@pytest.fixture(autouse=True)
def _servers_end():
    yield
    server.close_servers()


@pytest.fixture(scope="module")
def echo_folder(tmp_path_factory) -> Path:
    """Return what ``openenv init`` writes."""
    folder = tmp_path_factory.mktemp("init")
    program = environment_python(ENVIRONMENT).with_name("openenv")
    subprocess.run([program, "init", "my_env"], cwd=folder, check=True, capture_output=True)
    return folder / "my_env"


def test_the_environment_of_init_is_served_and_acts(run_in, echo_folder):
    given = {"folder": str(echo_folder), "max_env_steps": 2, **ECHO}
    experience, _ = run_in("hello", "hello world", **given)

    assert experience.reward == 1.5


def test_an_environment_of_tools_is_served_and_called(run_in):
    replies = [
        '<tool_call>\n{"name": "add", "arguments": {"a": 40, "b": 6}}\n</tool_call>',
        '<tool_call>\n{"name": "hand_in", "arguments": {"total": 46}}\n</tool_call>',
    ]
    folder = str(HERE / "served" / "adder")
    experience, _ = run_in(*replies, folder=folder, tools=True, template="40 + 6")

    assert experience.reward == 1.0


def test_a_server_that_was_killed_is_started_again(echo_folder):
    url = server.served(str(echo_folder), app="")
    assert server.served(str(echo_folder), app="") == url
    (running,) = server._servers.values()
    os.kill(running._process.process.pid, signal.SIGKILL)
    running._process.process.wait(10)

    assert server.served(str(echo_folder), app="") != url


def test_a_server_that_cannot_start_says_what_it_printed(echo_folder):
    with pytest.raises(EnvError) as raised:
        server.served(str(echo_folder), app="server.nothing:app")
    assert "ended with code 1. It printed: " in str(raised.value)
    assert "No module named 'server.nothing'" in str(raised.value)


def test_ten_steps_are_trained_though_the_server_is_killed_once(tmp_path, tiny_model, echo_folder):
    rows = "".join(json.dumps({"question": f"say {n}"}) + "\n" for n in range(8))
    (tmp_path / "rows.jsonl").write_text(rows)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(_config(tiny_model, echo_folder)))
    metrics = tmp_path / "checkpoints" / "openenv" / "echo" / "monitor" / "metrics.jsonl"
    command = [sys.executable, "-m", "trinity", "run", "--local", "--config", "run.yaml"]
    with (tmp_path / "said.txt").open("w") as said:
        run = subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=subprocess.STDOUT)
        try:
            killed = _kill_in_the_midst(run, metrics)
            code = run.wait(400)
        finally:
            run.kill()

    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    explored = [row for row in lines if "rollout/retried_runs" in row]
    assert code == 0, (tmp_path / "said.txt").read_text()
    assert len(explored) == 10
    assert sum(row["rollout/retried_runs"] for row in explored) >= 1
    assert sum(row["rollout/failed_runs"] for row in explored) == 0
    assert not Path(f"/proc/{killed}").exists()
    assert not _servers_of_anybody(echo_folder)


def _config(model: Path, folder: Path) -> dict:
    workflow_args = {"folder": str(folder), "max_env_steps": 6, **ECHO}
    taskset = {
        "name": "rows",
        "path": "rows.jsonl",
        "default_workflow_type": "openenv_workflow",
        "workflow_args": workflow_args,
    }
    return {
        "project": "openenv",
        "name": "echo",
        "algorithm": {
            "algorithm_type": "grpo",
            "repeat_times": 4,
            "kl_loss_fn": "none",
            "optimizer": {"lr": 1e-3},
        },
        "model": {"model_path": str(model), "max_model_len": 512, "max_response_tokens": 8},
        "buffer": {
            "batch_size": 2,
            "total_steps": 10,
            "explorer_input": {"taskset": taskset},
        },
        "explorer": {"max_timeout": 120, "max_retry_times": 2},
        "monitor": {"monitor_type": "jsonl"},
    }


def _kill_in_the_midst(run: subprocess.Popen[bytes], metrics: Path) -> int:
    """Kill the server after some steps, while an episode is under way; return its number."""
    end = time.monotonic() + 300
    while time.monotonic() < end and run.poll() is None:
        found = _servers_of(run.pid)
        has_begun = metrics.exists() and metrics.read_text().count("rollout/retried_runs") >= 3
        if has_begun and found and _is_talked_to(found[0]):
            os.kill(found[0], signal.SIGKILL)
            return found[0]
        time.sleep(0.01)
    raise AssertionError("no server was seen at work")


def _servers_of(parent: int) -> list[int]:
    """Return the servers among the processes below this one: a run has a parent of its own."""
    found = []
    for thread in Path(f"/proc/{parent}/task").glob("*"):
        try:
            for child in map(int, (thread / "children").read_text().split()):
                is_one = b"serve.py" in Path(f"/proc/{child}/cmdline").read_bytes()
                found += [child] if is_one else _servers_of(child)
        except FileNotFoundError:  # it ended meanwhile
            continue
    return found


def _is_talked_to(pid: int) -> bool:
    """Return whether a connection is open: a listening socket, and one more."""
    links = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(file))
        except FileNotFoundError:
            continue
    own = {link[8:-1] for link in links if link.startswith("socket:[")}
    table = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return any(row.split()[3] == "01" and row.split()[9] in own for row in table)


def _servers_of_anybody(folder: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_one = b"serve.py" in (process / "cmdline").read_bytes()
            if is_one and (process / "cwd").resolve() == folder.resolve():
                found.append(int(process.name))
        except OSError:
            continue
    return found
