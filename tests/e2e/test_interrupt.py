"""Ctrl-C in each phase: the run ends with 130, says so, and loses nothing."""

from __future__ import annotations

import json
import signal

import pytest

pytestmark = pytest.mark.slow

# A workflow, an advantage function and a reward that press Ctrl-C themselves, so that the phase is
# certain. Each does it once: the file it leaves says that it was done.
PRESSES = """
import os
import signal
from pathlib import Path

from trinity.algorithm import ADVANTAGE_FN
from trinity.common.workflows import WORKFLOWS, SimpleWorkflow

MARK = Path(os.environ["PRESSED"])


def press(times=1):
    if not MARK.exists():
        MARK.write_text("pressed")
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)


@WORKFLOWS.register_module("presses_while_exploring")
class Exploring(SimpleWorkflow):
    def run(self):
        if not self.task.is_eval and os.environ["PHASE"] == "explore":
            press()
        if self.task.is_eval and os.environ["PHASE"] == "evaluate":
            press()
        return super().run()


def grpo():
    from trinity.algorithm.advantage_fn.grpo import GRPOAdvantageFn

    return GRPOAdvantageFn


@ADVANTAGE_FN.register_module("presses_while_training")
class Training(grpo()):
    computed_on = "batch"

    def __call__(self, exps, **kwargs):
        if os.environ["PHASE"] == "train":
            press()
        return super().__call__(exps, **kwargs)
"""


def interrupted_run(config_dict, write_yaml, trinity, tmp_path, phase):
    plugins = tmp_path / "plugins"
    plugins.mkdir(exist_ok=True)
    (plugins / "presses.py").write_text(PRESSES)
    explorer_input = config_dict["buffer"]["explorer_input"]
    explorer_input["taskset"]["default_workflow_type"] = "presses_while_exploring"
    explorer_input["eval_tasksets"] = [explorer_input["taskset"] | {"name": "held_out"}]
    config_dict["explorer"]["eval_on_startup"] = True
    config_dict["algorithm"]["advantage_fn"] = "presses_while_training"
    path = write_yaml(config_dict)
    environment = {"PRESSED": str(tmp_path / "pressed"), "PHASE": phase}
    command = ["run", "--local", "--config", str(path), "--plugin-dir", str(plugins)]
    return [trinity(*command, env=environment) for _ in range(2)]


@pytest.mark.parametrize("phase", ["evaluate", "explore", "train"])
def test_a_run_that_is_stopped_saves_and_goes_on(
    phase, config_dict, write_yaml, trinity, tmp_path
) -> None:
    stopped, went_on = interrupted_run(config_dict, write_yaml, trinity, tmp_path, phase)

    assert stopped.returncode == 130, stopped.stdout + stopped.stderr
    assert "stopping: the step is finished and saved first" in stopped.stdout
    assert "Traceback" not in stopped.stderr
    assert went_on.returncode == 0, went_on.stdout + went_on.stderr
    status = json.loads((tmp_path / "checkpoints" / "e2e" / "tiny" / "run.json").read_text())
    assert (status["status"], status["train_steps"]) == ("finished", 2)
    assert status["trained_experiences"] == 32


def test_ctrl_c_while_the_program_starts_is_no_traceback(config_dict, write_yaml, tmp_path) -> None:
    import os
    import subprocess
    import sys

    path = write_yaml(config_dict)
    process = subprocess.Popen(
        [sys.executable, "-m", "trinity", "run", "--local", "--config", str(path)],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        process.wait(timeout=1.5)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)

    assert process.returncode == 130
    assert "Traceback" not in errors
