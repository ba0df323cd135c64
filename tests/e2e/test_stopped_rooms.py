"""A process of a run over Ray that is stopped for long is named, and the run goes on without it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trinity.runtime.record.history import read_history

pytestmark = [pytest.mark.ray, pytest.mark.acceptance]

TIMEOUT_S = 20


def until(is_so, *, limit_s):
    end = time.monotonic() + limit_s
    while not (found := is_so()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return found


@pytest.fixture
def run(config_dict, write_yaml, tmp_path):
    """Return a run over Ray of its own, as a process, and the file of what it says."""
    config_dict["buffer"] |= {"total_steps": 60, "total_epochs": 60}
    config_dict["trainer"] = {"save_interval": 1}
    config_dict["synchronizer"] = {"sync_timeout": TIMEOUT_S}
    said = tmp_path / "said"
    with said.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "trinity", "run", "--config", write_yaml(config_dict)],
            env=os.environ | {"OMP_NUM_THREADS": "1", "RAY_ADDRESS": "local", "COLUMNS": "300"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    yield process, said
    process.kill()
    process.wait(60)


def test_an_engine_a_runner_and_a_trainer_that_are_stopped_do_not_hold_the_run(
    run, run_dir, status_of
) -> None:
    process, said = run
    log = run_dir / "trinity.log"

    def started(room):
        """Return the process of a room whose start was told last; 0: it has not been."""
        found = re.findall(rf"{room} started: .*process (\d+)", log.read_text())
        return int(found[-1]) if found else 0

    until(lambda: log.is_file() and started("trainer"), limit_s=300)
    for room in ("engine-0", "runner-0", "trainer"):
        pid = started(room)
        os.kill(pid, signal.SIGSTOP)
        end = re.compile(rf"{room} \(process {pid} on .*\) has not answered .* is ended")
        until(lambda end=end: end.search(said.read_text()), limit_s=TIMEOUT_S + 5)
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), limit_s=30)

    assert process.wait(400) == 0, said.read_text()
    assert "If it is stopped, let it go on (kill -CONT)" in said.read_text()
    assert status_of()["train_steps"] == 60
    assert len(read_history(run_dir)) == 60
