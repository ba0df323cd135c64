"""Ctrl-C in each phase: the run ends with 130, says so, and loses nothing.

The golden texts are listed in ``test_bad_input.py``.
"""

from __future__ import annotations

import json
import re

import pytest

pytestmark = pytest.mark.slow

# A workflow, an advantage function and a hook that press Ctrl-C themselves, so that the phase is
# certain. It is done once: the file that is left says so. The signal goes to the thread that
# presses, as it well may: the main thread, which sleeps, has to notice by itself. The second one
# comes when the first was noticed, and the phase does not end before the run has.
PRESSES = """
import os
import signal
import threading
import time
from pathlib import Path

from trinity.algorithm import ADVANTAGE_FN
from trinity.algorithm.advantage_fn.grpo import GRPOAdvantageFn
from trinity.common.workflows import WORKFLOWS, SimpleWorkflow
from trinity.extend import hookimpl


def press(phase):
    if phase != os.environ["PHASE"].removeprefix("twice "):
        return
    try:
        Path(os.environ["PRESSED"]).touch(exist_ok=False)  # of many threads, one succeeds
    except FileExistsError:
        return
    on_signal = signal.getsignal(signal.SIGINT)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    if "twice" in os.environ["PHASE"]:
        wait_until(lambda: on_signal.__self__.is_requested)
        time.sleep(0.5)  # until its line is written: the second would break it off
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        wait_until(lambda: signal.getsignal(signal.SIGINT) != on_signal)


def wait_until(is_so):
    end = time.monotonic() + 50
    while not is_so() and time.monotonic() < end:
        time.sleep(0.01)


@WORKFLOWS.register_module("presses")
class Presses(SimpleWorkflow):
    def run(self):
        press("evaluate" if self.task.is_eval else "explore")
        return super().run()


@ADVANTAGE_FN.register_module("presses")
class PressesInTraining(GRPOAdvantageFn):
    computed_on = "batch"

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            press("load")  # the check of the configuration makes one too, before

    def __call__(self, exps, **kwargs):
        press("train")
        return super().__call__(exps, **kwargs)


@hookimpl
def trinity_checkpoint_saved(path):
    press("save")


if os.environ["PHASE"] == "start":
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.fixture
def arguments(config_dict, taskset, write_yaml, plugin_dir, tmp_path):
    """Return the command of a run whose every phase may press Ctrl-C."""
    taskset["default_workflow_type"] = "presses"
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text(
        "".join(f'{{"question": "{i} - 1 =", "answer": "{i - 1}"}}\n' for i in range(8))
    )
    config_dict["buffer"]["explorer_input"]["eval_tasksets"] = [
        taskset | {"name": "held_out", "path": str(held_out)}
    ]
    config_dict["explorer"]["eval_on_startup"] = True
    config_dict["algorithm"]["advantage_fn"] = "presses"
    config_dict["trainer"] = {"save_interval": 1}
    folder = plugin_dir(PRESSES, "presses.py")
    return ["run", "--local", "--config", write_yaml(config_dict), "--plugin-dir", folder]


def said(stdout: str) -> str:
    """Return what was said from Ctrl-C on, without times and the numbers of steps."""
    lines = [line for line in stdout.splitlines() if not line.startswith("step ")]
    first = next(n for n, line in enumerate(lines) if line.startswith("stop"))
    return re.sub(r"\b\d+ s$", "<T> s", "\n".join(lines[first:]), flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        ("train", "run_stopped_in_train"),
        pytest.param("evaluate", "run_stopped_in_evaluate", marks=pytest.mark.acceptance),
        pytest.param("save", "run_stopped_in_save", marks=pytest.mark.acceptance),
    ],
)
def test_a_run_that_is_stopped_saves_and_goes_on(
    phase, text, arguments, trinity, tmp_path, status_of, golden
) -> None:
    environment = {"PRESSED": str(tmp_path / "pressed"), "PHASE": phase}
    stopped = trinity(*arguments, **environment)
    status = status_of()["status"]
    went_on = trinity(*arguments, **environment)

    assert (stopped.code, stopped.stderr, status) == (130, "", "interrupted")
    golden(said(stopped.stdout), text, TMP=tmp_path)
    assert went_on.code == 0, went_on.stderr
    assert (status_of()["status"], status_of()["train_steps"]) == ("finished", 2)
    assert status_of()["trained_experiences"] == 32


@pytest.mark.acceptance
def test_the_program_itself_ends_so_while_it_explores(
    arguments, trinity, trinity_program, tmp_path, status_of, golden
) -> None:
    environment = {"PRESSED": str(tmp_path / "pressed"), "PHASE": "explore"}
    stopped = trinity_program(*arguments, env=environment)
    went_on = trinity(*arguments, **environment)

    assert (stopped.returncode, stopped.stderr) == (130, "")
    golden(said(stopped.stdout), "run_stopped_in_explore", TMP=tmp_path)
    assert went_on.code == 0, went_on.stderr
    assert status_of()["trained_experiences"] == 32


def test_a_second_ctrl_c_stops_at_once_and_the_saved_steps_stay(
    arguments, trinity, tmp_path, status_of, run_dir, golden
) -> None:
    environment = {"PRESSED": str(tmp_path / "pressed"), "PHASE": "twice explore"}
    stopped = trinity(*arguments, **environment)
    status = json.loads((run_dir / "run.json").read_text())["status"]
    went_on = trinity(*arguments, **environment)

    assert (stopped.code, status) == (130, "interrupted")
    golden(said(stopped.stdout + stopped.stderr), "run_stopped_twice", TMP=tmp_path)
    assert went_on.code == 0, went_on.stderr
    assert status_of()["trained_experiences"] == 32


def test_ctrl_c_while_models_load_does_not_wait_for_a_first_phase(
    arguments, trinity, tmp_path, status_of, run_dir, golden
) -> None:
    environment = {"PRESSED": str(tmp_path / "pressed"), "PHASE": "load"}
    stopped = trinity(*arguments, **environment)
    files = [path.name for path in run_dir.glob("*.json")]
    went_on = trinity(*arguments, **environment)

    assert (stopped.code, stopped.stderr) == (130, "")
    golden(said(stopped.stdout), "run_stopped_in_load", TMP=tmp_path)
    assert "run.json" not in files  # nothing had begun
    assert went_on.code == 0, went_on.stderr
    assert status_of()["trained_experiences"] == 32


def test_ctrl_c_while_the_program_starts_is_no_traceback(arguments, trinity_program) -> None:
    stopped = trinity_program(*arguments, env={"PHASE": "start", "PRESSED": ""})

    assert stopped.returncode == 130
    (said,) = stopped.stderr.splitlines()  # where what a plugin prints as it is imported goes
    assert said == "stopped at once, while the run was loading: the same command goes on"
