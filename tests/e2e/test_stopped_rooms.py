"""A process of a run over Ray that is stopped for long is named, and the run goes on without it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from trinity_testing.history import read_history

pytestmark = [pytest.mark.ray, pytest.mark.acceptance]

TIMEOUT_S = 20


def until(is_so, *, limit_s):
    end = time.monotonic() + limit_s
    while not (found := is_so()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return found


def process_of(room, log):
    """Return the process of a room whose start was told last; 0: it has not been."""
    found = re.findall(
        rf"{room} started: .*process (\d+)", log.read_text() if log.is_file() else ""
    )
    return int(found[-1]) if found else 0


@pytest.fixture
def run(config_dict, write_yaml, tmp_path):
    """Return what starts a run over Ray of its own and gives its process and what it says."""
    config_dict["buffer"] |= {"total_steps": 60, "total_epochs": 60}
    config_dict["trainer"] = {"save_interval": 1}
    config_dict["synchronizer"] = {"sync_timeout": TIMEOUT_S}
    said, started = tmp_path / "said", []

    def start(**trainer):
        config_dict["trainer"] |= trainer
        with said.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "trinity", "run", "--config", write_yaml(config_dict)],
                env=os.environ | {"OMP_NUM_THREADS": "1", "RAY_ADDRESS": "local", "COLUMNS": "300"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        started.append(process)
        return process, said

    yield start
    for process in started:
        process.kill()
        process.wait(60)


def test_an_engine_a_runner_and_a_trainer_that_are_stopped_do_not_hold_the_run(
    run, run_dir, status_of
) -> None:
    process, said = run()
    log = run_dir / "trinity.log"
    until(lambda: process_of("trainer", log), limit_s=300)
    for room in ("engine-0", "runner-0", "trainer"):
        pid = process_of(room, log)
        os.kill(pid, signal.SIGSTOP)
        end = re.compile(rf"{room} \(process {pid} on .*\) has not answered .* is ended")
        until(lambda end=end: end.search(said.read_text()), limit_s=TIMEOUT_S + 5)
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), limit_s=30)

    assert process.wait(400) == 0, said.read_text()
    assert "If it is stopped, let it go on (kill -CONT)" in said.read_text()
    assert status_of()["train_steps"] == 60
    assert len(read_history(run_dir)) == 60


def test_a_rank_that_is_stopped_takes_the_others_along_and_the_run_goes_on(
    run, run_dir, status_of
) -> None:
    process, said = run(num_ranks=2)
    log = run_dir / "trinity.log"
    pids = [until(partial(process_of, f"trainer-{rank}", log), limit_s=300) for rank in (0, 1)]
    until(lambda: len(read_history(run_dir)) > 2 if run_dir.is_dir() else 0, limit_s=200)

    os.kill(pids[1], signal.SIGSTOP)

    lost = "the process of trainer-1 was lost (it is there and has not answered for "
    until(lambda: lost in said.read_text(), limit_s=TIMEOUT_S + 5)
    for pid in pids:
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), limit_s=30)
    assert process.wait(400) == 0, said.read_text()
    assert status_of()["train_steps"] == 60
    assert len(read_history(run_dir)) == 60
