"""003: the older form of the workflow chapter, and where workflows may live."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

# The older form: model before task, everything positional, in a folder that is named on the
# command line.
OLDER_WORKFLOW = """
from trinity.common.experience import Experience
from trinity.common.workflows import WORKFLOWS, Workflow


@WORKFLOWS.register_module("{name}")
class Older(Workflow):
    def __init__(self, model, task, auxiliary_models):
        super().__init__(model, task, auxiliary_models)
        self.prompt = task.raw_task.get("question")
        self.rollout_args = task.rollout_args

    def run(self):
        answers = self.model.chat(
            [{{"role": "user", "content": self.prompt}}],
            n=self.rollout_args.n,
            temperature=self.rollout_args.temperature,
        )
        return [
            Experience(
                tokens=answer.tokens,
                prompt_length=answer.prompt_length,
                reward=float(len(answer.response_text) % 2),
                logprobs=answer.logprobs,
            )
            for answer in answers
        ]
"""


@pytest.fixture
def run_older(config_dict, taskset, write_yaml, plugin_dir, trinity):
    """Return a function that runs the older workflow under a name."""

    def run(name: str):
        taskset["default_workflow_type"] = name
        folder = plugin_dir(OLDER_WORKFLOW.format(name=name), "older.py")
        path = write_yaml(config_dict)
        return trinity("run", "--local", "--config", path, "--plugin-dir", folder)

    return run


def test_P072_P074_and_P095_the_older_form_in_a_plugin_folder_trains_and_is_read_nowhere_else(
    run_older, status_of, config_dict, write_yaml, trinity
) -> None:
    ended = run_older("example_workflow")

    assert ended.code == 0, ended.stderr
    assert status_of()["trained_experiences"] == 32

    without = trinity("run", "--local", "--config", write_yaml(config_dict))

    assert without.code == 1
    assert "no workflow named 'example_workflow'" in without.stderr


def test_P044_a_decorated_class_runs_under_a_name_that_a_plugin_we_know_of_would_give(
    run_older, status_of
) -> None:
    ended = run_older("alfworld_workflow")

    assert ended.code == 0, ended.stderr
    assert status_of()["status"] == "finished"


def test_P152_a_class_with_an_installed_name_is_used_and_one_line_says_so(
    run_older, status_of
) -> None:
    ended = run_older("math_workflow")

    said = [line for line in (ended.stderr + ended.stdout).splitlines() if "shadows" in line]
    assert ended.code == 0, ended.stderr
    assert len(said) == 1
    assert "math_workflow" in said[0]
    assert "older.py" in said[0]
    assert status_of()["trained_experiences"] == 32
