"""A user's own script over Ray: what it defines, sets and names reaches every process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import trinity as package

pytestmark = [pytest.mark.ray, pytest.mark.acceptance]

RAY = str(Path(sys.executable).with_name("ray"))

SCRIPT = '''
import json
import os
from pathlib import Path

import trinity
from trinity.common.config import load_config
from trinity.common.workflows import WORKFLOWS, SimpleWorkflow


def note(workflow):
    """Write down what the process of a run is like."""
    seen = {
        "pid": os.getpid(),
        "TMPDIR": os.environ["TMPDIR"],
        "TRINITY_MINE": os.environ["TRINITY_MINE"],
        "plugins": WORKFLOWS.get("dropped").value,
    }
    Path("seen.json").write_text(json.dumps(seen))


@WORKFLOWS.register_module("mine")
class Mine(SimpleWorkflow):
    def run(self):
        self.task.workflow_args["note"](self)
        return super().run()


if __name__ == "__main__":
    config = load_config("run.yaml")
    config.buffer.explorer_input.taskset.workflow_args = {"note": note}
    trinity.run(config)
    print("pid", os.getpid())
'''

DROPPED = """
from trinity.common.workflows import WORKFLOWS, SimpleWorkflow

@WORKFLOWS.register_module("dropped")
class Dropped(SimpleWorkflow):
    value = 73
"""


@pytest.fixture
def project(tmp_path, config_dict, taskset, rows, write_yaml):
    """Return a user's folder with the script, and a package with a module in trinity/plugins."""
    site = tmp_path / "site"
    shutil.copytree(
        Path(package.__file__).parent, site / "trinity", ignore=shutil.ignore_patterns("*.pyc")
    )
    (site / "trinity" / "plugins" / "dropped.py").write_text(DROPPED)
    taskset["default_workflow_type"] = "mine"
    taskset["path"] = f"./{rows.name}"
    del config_dict["checkpoint_root_dir"]
    config_dict["explorer"]["env_vars"] = {"TMPDIR": str(tmp_path / "scratch")}
    (tmp_path / "scratch").mkdir()
    write_yaml(config_dict)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def test_the_script_runs_as_it_would_in_one_process(project):
    short = tempfile.mkdtemp(prefix="ray")
    env = clean() | {
        "PYTHONPATH": str(project / "site"),
        "RAY_TMPDIR": short,
        "TRINITY_MINE": "yes",
    }
    ended = subprocess.run(
        [sys.executable, "train.py"], cwd=project, env=env, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    shutil.rmtree(short, ignore_errors=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "sent to the workers by value, as your script defines them: workflow" in ended.stdout
    assert "dropped (plugin-dir " in ended.stdout
    seen = json.loads((project / "seen.json").read_text())
    assert seen["pid"] != int(ended.stdout.split()[-1])
    assert seen["TMPDIR"] == str(project / "scratch")
    assert seen["TRINITY_MINE"] == "yes"
    assert seen["plugins"] == 73
    run = project / "checkpoints" / "e2e" / "tiny"
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    workers = {path.stem for path in (run / "logs").iterdir()}
    assert workers == {"engine-0", "runner-0", "trainer"}


@pytest.fixture(scope="module")
def head():
    """Return a Ray that a person started, without tokens: its folder, address and process."""
    short = tempfile.mkdtemp(prefix="ray")
    env = clean() | {"RAY_TMPDIR": short, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    env |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    start = [RAY, "start", "--head", "--block", "--port=0", "--num-cpus=2"]
    start += ["--include-dashboard=false", "--object-store-memory=100000000"]
    with open(Path(short) / "head.log", "w") as log:
        process = subprocess.Popen(start, env=env, stdout=log, stderr=log)
    try:
        yield Head(folder=short, address=noted(Path(short)), process=process)
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(short, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Head:
    folder: str
    address: str
    process: subprocess.Popen

    def is_alive(self):
        health = [RAY, "health-check", "--address", self.address]
        env = clean() | {"RAY_AUTH_MODE": "disabled", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        asked = subprocess.run(health, env=env, check=False, timeout=60, capture_output=True)
        return asked.returncode == 0 and self.process.poll() is None


def clean():
    """Return the environment of a person who never heard of Ray."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


def noted(folder):
    note, end = folder / "ray" / "ray_current_cluster", time.monotonic() + 60
    while not note.exists() and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(1)
    return note.read_text()


@pytest.fixture
def user(monkeypatch, tmp_path):
    """Return a user's environment, with a token in the home directory that the cluster has not."""
    for name in set(os.environ) - set(clean()):
        monkeypatch.delenv(name)
    (tmp_path / "home" / ".ray").mkdir(parents=True)
    (tmp_path / "home" / ".ray" / "auth_token").write_text("ab" * 32)
    return {"HOME": str(tmp_path / "home")}


def sft_over(rows):
    """Return what trains on four demonstrations: one step, in the fewest rooms."""
    turns = [{"role": "user", "content": "say a"}, {"role": "assistant", "content": "a"}]
    path = rows.with_name("sft.jsonl")
    path.write_text((json.dumps({"messages": turns}) + "\n") * 4)
    demonstrations = {
        "storage_type": "file",
        "path": str(path),
        "format": {"prompt_type": "messages", "messages_key": "messages"},
    }
    return {
        "mode": "train",
        "algorithm": {"algorithm_type": "sft", "optimizer": {"lr": 1e-3}},
        "buffer": {
            "train_batch_size": 4,
            "trainer_input": {"experience_buffer": demonstrations},
        },
    }


def test_the_program_joins_what_ray_start_began_and_leaves_it(
    trinity_program, config_dict, write_yaml, rows, head, user
):
    config_dict |= sft_over(rows)
    config_dict["buffer"]["total_epochs"] = 1
    user["RAY_TMPDIR"] = head.folder
    ended = trinity_program("run", "--config", write_yaml(config_dict), env=user)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"joined the Ray cluster at {head.address}" in ended.stdout
    assert ended.stderr == ""
    assert head.is_alive()


def test_a_run_that_never_fits_on_a_joined_cluster_says_so_before_it_starts(
    trinity_program, config_dict, write_yaml, head, user
):
    config_dict["explorer"]["rollout_model"] = {"engine_num": 2}
    user["RAY_TMPDIR"] = head.folder  # where the cluster that ``ray start`` began is noted
    ended = trinity_program("run", "--config", write_yaml(config_dict), env=user)
    assert ended.returncode == 1
    assert f"joined the Ray cluster at {head.address}" in ended.stdout
    assert "the run does not fit on the Ray cluster" in ended.stderr
    assert "2 + 1 here, and the cluster's machines have 2." in ended.stderr
    assert "started in" not in ended.stdout
    assert head.is_alive()


def test_stages_join_a_named_cluster_that_has_no_tokens_though_the_user_has_one(
    trinity_program, config_dict, write_yaml, rows, head, user
):
    sft = {"stage_name": "sft"} | sft_over(rows)
    config_dict["stages"] = [sft, {"stage_name": "grpo"}]
    user["RAY_ADDRESS"] = head.address
    ended = trinity_program("run", "--config", write_yaml(config_dict), env=user)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "lost" not in ended.stdout
    assert "stage sft: finished, 1 train steps" in ended.stdout
    assert "stage grpo: finished, 2 train steps" in ended.stdout
    assert head.process.poll() is None


def test_a_user_who_insists_on_a_token_is_told_that_the_cluster_has_none(
    trinity_program, config_dict, write_yaml, head, user, golden
):
    user |= {"RAY_ADDRESS": head.address, "RAY_AUTH_MODE": "token"}
    ended = trinity_program("run", "--config", write_yaml(config_dict), env=user)
    assert ended.returncode == 1
    golden(ended.stderr, "ray_without_token", ADDRESS=head.address)
