"""A user's own script over Ray: what it defines, sets and names reaches every process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import trinity as package

pytestmark = [pytest.mark.ray, pytest.mark.slow]

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
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    env |= {"PYTHONPATH": str(project / "site"), "RAY_TMPDIR": short, "TRINITY_MINE": "yes"}
    ended = subprocess.run(
        [sys.executable, "train.py"], cwd=project, env=env, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    shutil.rmtree(short, ignore_errors=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "sent to the rooms by value, as your script defines them: workflow mine" in ended.stdout
    assert "dropped (plugin-dir " in ended.stdout
    seen = json.loads((project / "seen.json").read_text())
    assert seen["pid"] != int(ended.stdout.split()[-1])
    assert seen["TMPDIR"] == str(project / "scratch")
    assert seen["TRINITY_MINE"] == "yes"
    assert seen["plugins"] == 73
    run = project / "checkpoints" / "e2e" / "tiny"
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    rooms = {path.stem for path in (run / "logs").iterdir()}
    assert rooms == {"buffer", "engine-0", "explorer", "runner-0", "synchronizer", "trainer"}


def test_the_program_joins_what_ray_start_began_and_leaves_it(
    trinity_program, config_dict, write_yaml
):
    short = tempfile.mkdtemp(prefix="ray")
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    env |= {"RAY_TMPDIR": short, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    env |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    ray = str(Path(sys.executable).with_name("ray"))
    start = [ray, "start", "--head", "--block", "--port=0", "--num-cpus=2"]
    start += ["--include-dashboard=false", "--object-store-memory=100000000"]
    with open(Path(short) / "head.log", "w") as log:
        head = subprocess.Popen(start, env=env, stdout=log, stderr=log)
    try:
        note = Path(short) / "ray" / "ray_current_cluster"
        _wait_for(note)
        ended = trinity_program("run", "--config", write_yaml(config_dict), env=env)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert f"joined the Ray cluster at {note.read_text()}" in ended.stdout
        assert ended.stderr == ""
        address = ["--address", note.read_text()]
        status = subprocess.run(
            [ray, "health-check", *address], env=env, check=False, timeout=60, capture_output=True
        )
        assert status.returncode == 0
        assert head.poll() is None
    finally:
        head.terminate()
        head.wait(30)
        shutil.rmtree(short, ignore_errors=True)


def _wait_for(path):
    import time

    end = time.monotonic() + 60
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(1)
