"""What a user sees when a run goes wrong on the way: one message, a true exit code, nothing lost."""

from __future__ import annotations

import json
import resource

import pytest

pytestmark = pytest.mark.slow

WORKFLOWS = """
import time

from trinity.common.experience import Experience
from trinity.common.workflows import WORKFLOWS, Workflow


@WORKFLOWS.register_module("raises")
class Raises(Workflow):
    def run(self):
        raise KeyError("no such room")


@WORKFLOWS.register_module("returns_nothing")
class ReturnsNothing(Workflow):
    def run(self):
        return None


@WORKFLOWS.register_module("returns_wrong_lengths")
class ReturnsWrongLengths(Workflow):
    def run(self):
        answer = self.model.chat([{"role": "user", "content": "hi"}])[0]
        return [Experience(tokens=answer.tokens, prompt_length=1, logprobs=[0.0], reward=1.0)]


@WORKFLOWS.register_module("returns_nan")
class ReturnsNan(Workflow):
    def run(self):
        answer = self.model.chat([{"role": "user", "content": "hi"}])[0]
        answer.reward = float("nan")
        return [answer]


@WORKFLOWS.register_module("hangs")
class Hangs(Workflow):
    def run(self):
        time.sleep(3600)


@WORKFLOWS.register_module("raises_in_the_second_step")
class RaisesLater(Workflow):
    def run(self):
        if str(self.task.batch_id) != "1":
            raise RuntimeError("the room is closed")
        answer = self.model.chat([{"role": "user", "content": "hi"}])[0]
        answer.reward = float(len(answer.response_text) % 2)
        return [answer]
"""


@pytest.fixture
def run_workflow(config_dict, write_yaml, trinity, tmp_path):
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "rooms.py").write_text(WORKFLOWS)

    def run(name, **explorer):
        taskset = config_dict["buffer"]["explorer_input"]["taskset"]
        taskset["default_workflow_type"] = name
        config_dict["explorer"] |= {"max_retry_times": 0} | explorer
        path = write_yaml(config_dict)
        return trinity("run", "--local", "--config", str(path), "--plugin-dir", str(plugins))

    return run


@pytest.mark.parametrize(
    "name", ["raises", "returns_nothing", "returns_wrong_lengths", "returns_nan"]
)
def test_a_workflow_that_always_fails_ends_the_run_with_its_name(
    name, run_workflow, golden, tmp_path
) -> None:
    ended = run_workflow(name)

    assert ended.returncode == 1, ended.stdout
    assert "Traceback" not in ended.stderr
    golden(ended.stderr, f"run_workflow_{name}", TMP=tmp_path)


def test_a_workflow_that_hangs_is_given_up_after_its_timeout(
    run_workflow, golden, tmp_path
) -> None:
    ended = run_workflow("hangs", max_timeout=1, runner_per_model=4)

    assert ended.returncode == 1, ended.stdout
    golden(ended.stderr, "run_workflow_hangs", TMP=tmp_path)


def test_what_was_trained_before_a_failure_is_saved(run_workflow, tmp_path) -> None:
    ended = run_workflow("raises_in_the_second_step")

    assert ended.returncode == 1, ended.stdout
    run = tmp_path / "checkpoints" / "e2e" / "tiny"
    status = json.loads((run / "run.json").read_text())
    assert (status["status"], status["train_steps"]) == ("failed", 1)
    assert "the room is closed" in status["error"]
    assert (run / "global_step_1" / "state.json").exists()


def test_a_full_disk_is_named_and_leaves_no_half_checkpoint(
    config_dict, write_yaml, trinity, tmp_path, golden
) -> None:
    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    ended = trinity(
        "run", "--local", "--config", str(write_yaml(config_dict)), preexec_fn=little_room
    )

    assert ended.returncode == 1, ended.stdout
    assert "Traceback" not in ended.stderr
    golden(ended.stderr, "run_disk_full", TMP=tmp_path)
    run = tmp_path / "checkpoints" / "e2e" / "tiny"
    assert not list(run.glob("*global_step*"))
