"""Ctrl-C over Ray reaches all processes at once, as a terminal sends it; none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.ray]

SHARED_MEMORY = Path("/dev/shm")


def processes_of(mark):
    """Return the processes that have the mark in their environment."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            is_ours = mark.encode() in environment.read_bytes()
            name = (environment.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if is_ours and name:  # a zombie has none
            found.append(name.replace(b"\0", b" ").decode()[:300])
    return found


def agents_of_nobody():
    """Return the agents of Ray whose raylet is gone."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            title = (directory / "cmdline").read_bytes().decode().strip("\0 ")
            parent = (directory / "stat").read_text().rpartition(")")[2].split()[1]
            above = Path("/proc", parent, "cmdline").read_bytes()
        except OSError:
            continue
        is_agent = title.startswith("ray::") and title.endswith("Agent")
        if is_agent and b"raylet" not in above:
            found.append(f"{directory.name} {title}")
    return found


def memory_of_nobody(before):
    """Return the new files of shared memory that no living process has mapped."""
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            mapped += maps.read_text()
        except OSError:
            continue
    new = [path for path in SHARED_MEMORY.iterdir() if path not in before]
    others = "libpod"  # locks of podman, which somebody may start meanwhile
    return [path for path in new if str(path) not in mapped and not path.name.startswith(others)]


@pytest.fixture
def start(config_dict, write_yaml, tmp_path):
    """Start a long run over Ray in a process group, and wait for a line; its first step's."""
    config_dict["buffer"]["total_epochs"] = 500
    config_dict["trainer"] = {"save_interval": 0}
    command = [sys.executable, "-m", "trinity", "run", "--config", write_yaml(config_dict)]
    mark = f"TRINITY_TEST={uuid.uuid4()}"

    def begin(*, until="step "):
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | dict([mark.split("=")]),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith(until):
                return process
        pytest.fail("".join(said))

    return begin, mark


def press(process, number=signal.SIGINT) -> None:
    os.killpg(process.pid, number)


def assert_nothing_is_left(mark, memory, *, within_s=300) -> None:
    deadline = time.monotonic() + within_s  # Ray's agents look for their parent now and then
    while processes_of(mark) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert processes_of(mark) == []
    assert memory_of_nobody(memory) == []


@pytest.mark.acceptance
def test_ctrl_c_once_saves_and_twice_stops_at_once(start, status_of, run_dir) -> None:
    begin, mark = start
    memory = set(SHARED_MEMORY.iterdir())

    process = begin()
    press(process)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "the step is finished and saved first" in said
    assert "lost" not in said
    assert "Traceback" not in said
    assert (run_dir / f"global_step_{status_of()['train_steps']}" / "state.json").exists()
    assert_nothing_is_left(mark, memory)

    process = begin()
    press(process)
    time.sleep(0.05)  # the system merges signals that come at once
    press(process)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert status_of()["status"] == "interrupted"
    assert_nothing_is_left(mark, memory)


@pytest.mark.acceptance
def test_no_process_outlives_a_killed_driver(start) -> None:
    begin, mark = start
    memory = set(SHARED_MEMORY.iterdir())

    process = begin()
    process.kill()
    process.communicate(timeout=60)

    assert_nothing_is_left(mark, memory, within_s=10)  # 1 where the machine is idle


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        pytest.param(signal.SIGINT, "before Ray", marks=pytest.mark.acceptance),
        pytest.param(signal.SIGINT, "gcs_server", marks=pytest.mark.acceptance),
        pytest.param(signal.SIGINT, "raylet", marks=pytest.mark.acceptance),
        pytest.param(signal.SIGTERM, "before Ray", marks=pytest.mark.acceptance),
        pytest.param(signal.SIGTERM, "gcs_server", marks=pytest.mark.acceptance),
        pytest.param(signal.SIGTERM, "raylet", marks=pytest.mark.acceptance),
    ],
)
def test_a_run_that_is_stopped_while_ray_starts_says_so_and_leaves_nothing(
    start, run_dir, number, moment
) -> None:
    begin, mark = start
    memory = set(SHARED_MEMORY.iterdir())

    process = begin(until="run tiny ")
    while moment != "before Ray" and not any(moment in one for one in processes_of(mark)):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, number)  # to it alone, as the studio and a system's manager do
    said, _ = process.communicate(timeout=120)

    assert_it_was_stopped_while_it_loaded(process, said, run_dir)
    assert_nothing_is_left(mark, memory)


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("gcs/gcs_server", marks=pytest.mark.acceptance),
        pytest.param("raylet/raylet", marks=pytest.mark.acceptance),
        pytest.param("dashboard/agent.py", marks=pytest.mark.acceptance),
        pytest.param("runtime_env/agent/main.py", marks=pytest.mark.acceptance),
    ],
)
def test_ctrl_c_twice_while_ray_starts_leaves_no_agent(start, run_dir, moment) -> None:
    begin, mark = start
    memory, others = set(SHARED_MEMORY.iterdir()), agents_of_nobody()

    process = begin(until="run tiny ")
    while not any(moment in one for one in processes_of(mark)):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.05)  # the system merges signals that come at once
    os.kill(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    agents = agents_of_nobody()

    assert set(agents) <= set(others)  # at once: by themselves they end up to 90 s later
    assert "from the last checkpoint" not in said
    assert_it_was_stopped_while_it_loaded(process, said, run_dir)
    assert_nothing_is_left(mark, memory)


def assert_it_was_stopped_while_it_loaded(process, said, run_dir) -> None:
    assert process.returncode == 130, said
    last = said.splitlines()[-1]
    assert last == "stopped at once, while the run was loading: the same command goes on"
    assert not (run_dir / "run.json").exists()
