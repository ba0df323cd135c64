"""002: what the workflow guide promises of a workflow that is run."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import trinity as trinity_package
from trinity.buffer.task_source import Taskset
from trinity.common.config import FormatConfig, GenerationConfig, TasksetConfig
from trinity.common.experience import Experience
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.workflows import WORKFLOWS, Workflow
from trinity.engines.transformers_engine import TransformersEngine
from trinity.errors import ConflictError
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine

GUIDE_WORKFLOW = """
from typing import List

from trinity.common.experience import Experience
from trinity.common.workflows import Task
from trinity.common.workflows.workflow import WORKFLOWS, Workflow


@WORKFLOWS.register_module("{name}")
class GuideWorkflow(Workflow):
    def __init__(self, task: Task, model, auxiliary_models: List):
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self.reset(task)

    def score(self, response: str, truth: str) -> float:
        return float(len(response) % 3)

    def run(self) -> List[Experience]:
        prompt = [{{"role": "user", "content": f"Question:\\n{{self.question}}"}}]
        answers = self.model.chat(
            prompt, n=self.rollout_args.n, temperature=self.rollout_args.temperature
        )
        return [
            Experience(
                tokens=answer.tokens,
                prompt_length=answer.prompt_length,
                reward=self.score(answer.response_text, self.answer),
                logprobs=answer.logprobs,
            )
            for answer in answers
        ]

    def resettable(self):
        return True

    def reset(self, task: Task):
        self.question = task.raw_task.get("question")
        self.answer = task.raw_task.get("answer")
        self.rollout_args = task.rollout_args
"""


class Noting(Workflow):
    """Written as the guide's: no default for ``auxiliary_models``, one answer a sample asked."""

    seen: list[Workflow] = []  # noqa: RUF012 - of all instances
    num_built = num_reset = 0

    def __init__(self, task, model, auxiliary_models):
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        type(self).num_built += 1

    def resettable(self):
        return type(self).can_be_reset

    def reset(self, task):
        type(self).num_reset += 1
        self.task = task

    def run(self):
        self.seen.append(self.task)
        args = self.task.rollout_args
        style = self.task.workflow_args.get("style", "")
        question = self.task.raw_task.get("question", "")
        answers = self.model.chat(
            [{"role": "user", "content": f"{style}{question}"}],
            n=args.n,
            temperature=args.temperature,
        )
        return [
            Experience(
                tokens=one.tokens,
                prompt_length=one.prompt_length,
                reward=1.0,
                logprobs=one.logprobs,
            )
            for one in answers
        ]

    can_be_reset = False


@pytest.fixture
def noting():
    Noting.seen, Noting.num_built, Noting.num_reset = [], 0, 0
    Noting.can_be_reset = False
    return Noting


def test_P047_and_P129_the_runner_makes_the_workflow_and_passes_auxiliary_models(
    explored, noting
) -> None:
    explored(a_task(workflow=noting))

    assert noting.num_built == 1  # although __init__ demands auxiliary_models


def test_P048_returning_none_is_reported_with_plugin_and_task(explored) -> None:
    class Forgets(Workflow):
        def run(self):
            return None

    (failure,) = explored(a_task(workflow=Forgets), max_failed_ratio=1.0).result.failures

    assert "run() returned None" in failure.message
    assert "Forgets" in failure.plugin
    assert failure.task_id.startswith("1/0")


def test_P054_each_of_the_three_levels_changes_the_prompt(explored, noting, tmp_path) -> None:
    tasks = []
    for style in ("plain: ", "rhymed: "):
        path = tmp_path / f"{style[:5]}.jsonl"
        path.write_text("".join(json.dumps({"question": f"{style[0]}{n}"}) + "\n" for n in (1, 2)))
        config = TasksetConfig(path=str(path), workflow_args={"style": style})
        tasks += [replace(task, workflow=noting) for task in Taskset(config).tasks()]

    prompts = explored(*tasks).prompts

    expected = ["plain: p1", "plain: p2", "rhymed: r1", "rhymed: r2"]
    assert [text in prompt for text, prompt in zip(expected, prompts, strict=True)] == [True] * 4


def test_P057_and_P134_the_math_workflow_uses_keys_and_arguments_and_scores_as_published(
    explored,
) -> None:
    task = a_task(
        workflow="math_workflow",
        raw_task={"q": "1+1=", "a": "2"},
        format_args=FormatConfig(prompt_key="q", response_key="a"),
        rollout_args=GenerationConfig(temperature=0.3),
        repeat_times=2,
    )
    tagged = "<think>one and one</think><answer>2</answer>"

    step = explored(task, engine=ScriptedEngine("2", tagged))

    (asked,) = step.engine.exchanges
    assert asked.request.temperature == 0.3
    assert "1+1=" in step.prompts[0]
    assert [one.reward for one in step.experiences] == pytest.approx([0.9, 1.1])


def test_P062_three_samples_of_one_prompt_differ_at_temperature_1(tiny_model) -> None:
    engine = TransformersEngine(model_path=str(tiny_model), max_model_len=96, seed=1)
    settings = ModelSettings(model_path=str(tiny_model), max_model_len=96, max_response_tokens=8)
    model = ModelWrapper(engine, ChatFormat.load(str(tiny_model)), settings)

    answers = model.chat([{"role": "user", "content": "1 + 1 ="}], n=3, temperature=1.0)

    engine.close()
    assert len({tuple(answer.tokens.tolist()) for answer in answers}) == 3
    assert len({answer.prompt_length for answer in answers}) == 1


def test_P065_a_second_class_under_a_name_is_an_error_that_names_both(a_process) -> None:
    class First(Noting):
        pass

    class Second(Noting):
        pass

    WORKFLOWS.register_module("tutorial_taken")(First)
    with pytest.raises(ConflictError) as raised:
        WORKFLOWS.register_module("tutorial_taken")(Second)

    assert "First" in str(raised.value)
    assert "Second" in str(raised.value)


@pytest.mark.parametrize(("can_be_reset", "built", "reset"), [(True, 1, 9), (False, 10, 0)])
def test_P067_ten_tasks_need_one_instance_where_it_can_be_reset(
    can_be_reset, built, reset, explored, noting
) -> None:
    noting.can_be_reset = can_be_reset

    explored(*(a_task(f"{n} + 1 =", workflow=noting) for n in range(10)), runner_per_model=1)

    assert (noting.num_built, noting.num_reset) == (built, reset)


def test_P068_the_snippet_is_checked_and_a_misspelt_workflow_gets_a_hint(
    config_dict, taskset, write_yaml, plugin_dir, trinity
) -> None:
    folder = plugin_dir(GUIDE_WORKFLOW.format(name="example_workflow"))
    answers = []
    for name in ("example_workflow", "exmaple_workflow"):
        taskset["default_workflow_type"] = name
        path = write_yaml(config_dict)
        answers.append(trinity("--plugin-dir", folder, "config", "check", path))

    assert (answers[0].code, answers[1].code) == (0, 1)
    assert "Did you mean 'example_workflow'?" in answers[1].stdout


def test_P130_n_and_temperature_are_numbers_whether_or_not_the_yaml_says_so(
    config_dict, taskset, run_it, noting
) -> None:
    WORKFLOWS.register_module("tutorial_noting")(noting)
    taskset["default_workflow_type"] = "tutorial_noting"
    config_dict["mode"] = "explore"

    run_it()

    asked = {(task.rollout_args.n, task.rollout_args.temperature) for task in noting.seen}
    assert asked == {(1, 1.0)}


def test_P131_the_engine_makes_repeat_times_samples_of_one_group(explored, noting) -> None:
    step = explored(a_task(workflow=noting, repeat_times=4))

    assert step.engine.num_samples == 4
    assert len(step.experiences) == 4
    assert len({experience.eid.tid for experience in step.experiences}) == 1


def test_P132_eid_and_mask_of_an_experience_are_filled_in(explored, noting) -> None:
    step = explored(a_task(workflow=noting, repeat_times=4))

    assert len({experience.eid.uid for experience in step.experiences}) == 4
    for experience in step.experiences:
        assert experience.action_mask.tolist() == [True] * experience.response_length


def test_P133_nested_data_of_a_row_reaches_run_unchanged(
    config_dict, taskset, rows, run_it, noting
) -> None:
    row = {
        "question": "add",
        "answer": "",
        "tests": [{"in": [1, 2], "out": 3}, {"in": [2, None], "out": {"error": "no number"}}],
    }
    rows.write_text("".join(json.dumps(row) + "\n" for _ in range(4)))
    WORKFLOWS.register_module("tutorial_noting")(noting)
    taskset["default_workflow_type"] = "tutorial_noting"
    config_dict["mode"] = "explore"

    run_it()

    assert all(task.raw_task == row for task in noting.seen)


@pytest.mark.slow
def test_P064_a_workflow_in_a_plugin_folder_trains(
    config_dict, taskset, write_yaml, plugin_dir, trinity, run_dir
) -> None:
    taskset["default_workflow_type"] = "guide_workflow"
    folder = plugin_dir(GUIDE_WORKFLOW.format(name="guide_workflow"))
    arguments = ["run", "--local", "--config", write_yaml(config_dict), "--plugin-dir", folder]

    ended = trinity(*arguments)

    assert ended.code == 0, ended.stderr
    lines = (run_dir / "monitor" / "metrics.jsonl").read_text().splitlines()
    norms = [json.loads(line).get("actor/grad_norm", 0.0) for line in lines]
    assert max(norms) > 0  # rewards differed, so something was learned


@pytest.fixture
def source_copy(tmp_path) -> Path:
    """Return a copy of the source tree, to be changed as a contributor would."""
    package = Path(trinity_package.__file__).parent
    shutil.copytree(package, tmp_path / "source" / "trinity")  # compiled, as it lies there
    return tmp_path / "source"


@pytest.mark.slow
@pytest.mark.acceptance
def test_P066_P069_and_P073_a_file_in_the_tree_and_one_in_trinity_plugins_are_found(
    config_dict, taskset, write_yaml, source_copy, trinity_program
) -> None:
    workflows = source_copy / "trinity" / "common" / "workflows"
    (workflows / "example_workflow.py").write_text(GUIDE_WORKFLOW.format(name="example_workflow"))
    with (workflows / "__init__.py").open("a") as file:
        file.write("from trinity.common.workflows.example_workflow import GuideWorkflow\n")
    dropped = source_copy / "trinity" / "plugins" / "dropped.py"
    dropped.write_text(GUIDE_WORKFLOW.format(name="dropped_workflow"))
    del config_dict["buffer"]["explorer_input"]["taskset"]
    config_dict["buffer"]["explorer_input"]["tasksets"] = [
        taskset | {"default_workflow_type": name, "name": name}
        for name in ("example_workflow", "dropped_workflow")
    ]
    environment = {"PYTHONPATH": f"{source_copy}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}

    path = write_yaml(config_dict)
    ended = trinity_program("run", "--local", "--config", path, env=environment)

    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "dropped (plugin-dir" in ended.stdout
