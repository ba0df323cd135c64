"""A run with ``--restart`` goes on by itself, also below systemd, Slurm and Kubernetes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "keep-a-run-going.md"

DIES = """
import os
import signal
import time
from pathlib import Path

from trinity.extend import hookimpl


def is_own_raylet(directory):
    try:
        command = (directory / "cmdline").read_bytes()
        parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return False
    return command.split(bytes(1))[0].endswith(b"raylet") and parent == os.getpid()


@hookimpl
def trinity_checkpoint_saved(path):
    if not Path("died").exists():
        Path("died").touch()
        raylets = [int(at.name) for at in Path("/proc").glob("[0-9]*") if is_own_raylet(at)]
        os.kill(*raylets or [os.getpid()], signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "why"),
    [
        (["--local"], "the run was ended by SIGKILL"),
        pytest.param(
            [],
            "has lost the raylet of this machine",
            marks=pytest.mark.ray,
        ),
    ],
    ids=["driver", "raylet"],
)
@pytest.mark.acceptance
def test_a_run_goes_on_by_itself_and_counts_it(
    where, why, config_dict, write_yaml, plugin_dir, trinity_program, status_of, run_dir
) -> None:
    config_dict["trainer"] = {"save_interval": 1}
    folder = plugin_dir(DIES, "dies.py")
    arguments = ["run", *where, "--config", write_yaml(config_dict), "--plugin-dir", folder]

    ended = trinity_program(*arguments, "--restart", "2")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = [line for line in ended.stderr.splitlines() if line.startswith("restart ")]
    assert len(said) == 1
    assert said[0].startswith("restart 1 of 2 in 2 s: ")
    assert why in said[0]
    assert "going on after explore step 1, train step 1" in ended.stdout
    assert (status_of()["status"], status_of()["restarts"]) == ("finished", 1)
    assert "restarted 1 times" in trinity_program("status", run_dir).stdout


def example(kind):
    return re.search(rf"```{kind}\n(.*?)```", PAGE.read_text().partition("## systemd")[2], re.S)[1]


@pytest.mark.acceptance
def test_slurms_signal_saves_the_run_and_requeues_the_job(
    config_dict, write_yaml, tmp_path, status_of
) -> None:
    config_dict["buffer"]["total_epochs"] = 100
    write_yaml(config_dict)
    programs = {
        "trinity": f'exec {sys.executable} -m trinity "$@" --local',
        "scontrol": f'echo "$@" >> {tmp_path}/requeued',
    }
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, line in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{line}\n")
        (folder / name).chmod(0o755)
    (tmp_path / "job.sh").write_text(example("bash"))
    job = subprocess.Popen(
        ["bash", "job.sh"],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "4711"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for line in job.stdout:
        if line.startswith("step "):
            break

    job.send_signal(signal.SIGUSR1)

    said = job.communicate(timeout=60)[0]
    assert "the step is finished and saved first" in said
    assert job.returncode == 130, said
    assert (tmp_path / "requeued").read_text() == "requeue 4711\n"
    assert status_of()["status"] == "interrupted"


def test_the_unit_for_systemd_and_the_job_for_kubernetes_are_valid(tmp_path) -> None:
    job = yaml.safe_load(example("yaml"))
    assert (job["kind"], job["spec"]["template"]["spec"]["restartPolicy"]) == ("Job", "Never")
    assert all(isinstance(word, str) for word in _container(job)["command"])
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    unit = tmp_path / "trinity.service"
    text = example("ini").replace("/srv/trinity/venv/bin/trinity", sys.executable)
    unit.write_text(text.replace("/srv/trinity", str(tmp_path)))
    checked = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert str(unit) not in checked.stderr
    assert checked.returncode == 0, checked.stderr


def _container(job):
    return job["spec"]["template"]["spec"]["containers"][0]
