"""002: the workflow development guide."""

from __future__ import annotations

import importlib
import json

import pytest
import trinity
from trinity.common.config import FormatConfig, GenerationConfig, load_config
from trinity.common.experience import Experience
from trinity.common.workflows import Task, Workflow
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over, scripted_model

GUIDE_WORKFLOW = """
from typing import List

from trinity.common.experience import Experience
from trinity.common.workflows import Task
from trinity.common.workflows.workflow import WORKFLOWS, Workflow


@WORKFLOWS.register_module("guide_workflow")
class GuideWorkflow(Workflow):
    built = 0

    def __init__(self, task: Task, model, auxiliary_models: List):
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self.reset(task)

    def score(self, response: str, truth: str) -> float:
        return float(len(response) % 3)

    def run(self) -> List[Experience]:
        prompt = [{"role": "user", "content": f"Question:\\n{self.question}"}]
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


class OneAnswer(Workflow):
    def __init__(self, task, model, auxiliary_models):
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)

    def run(self):
        return self.model.chat([{"role": "user", "content": "hello"}])


def a_task(**fields) -> Task:
    values = {"workflow": OneAnswer, "raw_task": {"question": "1+1=", "answer": "2"}}
    return Task(**(values | fields))


def test_P047_a_task_becomes_a_workflow() -> None:
    workflow = a_task().to_workflow(scripted_model("2"))

    assert isinstance(workflow, OneAnswer)


def test_P048_and_P128_the_base_class_keeps_task_model_and_auxiliary_models() -> None:
    model, task = scripted_model("2"), a_task()

    workflow = OneAnswer(task, model, [])

    assert (workflow.task, workflow.model, workflow.auxiliary_models) == (task, model, [])


def test_P049_environment_classes_that_are_not_installed_name_their_package() -> None:
    from trinity.common import workflows

    assert workflows.MathWorkflow.__name__ == "MathWorkflow"
    with pytest.raises(ImportError, match="pip install trinity-envs-webshop"):
        workflows.WebShopWorkflow  # noqa: B018


def test_P052_and_P160_the_fields_of_a_task_have_the_published_types() -> None:
    task = a_task(reward_fn="math_reward")

    assert isinstance(task.format_args, FormatConfig)
    assert isinstance(task.rollout_args, GenerationConfig)
    assert isinstance(task.workflow_args, dict)
    assert task.reward_fn == "math_reward"


def test_P058_a_workflow_without_run_cannot_be_made() -> None:
    class Nothing(Workflow):
        pass

    with pytest.raises(TypeError, match="run"):
        Nothing(task=a_task(), model=scripted_model("2"))


def test_P059_an_answer_has_the_four_published_attributes() -> None:
    answer = scripted_model("four").chat([{"role": "user", "content": "2+2="}])[0]

    assert answer.response_text == "four"
    assert len(answer.logprobs) == len(answer.tokens) - answer.prompt_length


def test_P062_n_samples_need_one_prefill() -> None:
    engine = ScriptedEngine("a", "b", "c")

    answers = model_over(engine).chat([{"role": "user", "content": "hi"}], n=3)

    assert [answer.response_text for answer in answers] == ["a", "b", "c"]
    assert engine.num_prefills == 1


def test_P063_four_keywords_make_an_experience() -> None:
    experience = Experience(tokens=[1, 2, 3], prompt_length=1, reward=1.0, logprobs=[-0.1, -0.2])

    assert experience.response_length == 2


def test_P065_and_P113_the_registry_is_one_object_under_both_paths() -> None:
    package = importlib.import_module("trinity.common.workflows")
    module = importlib.import_module("trinity.common.workflows.workflow")

    assert package.WORKFLOWS is module.WORKFLOWS


def test_P124_the_published_classes_come_from_both_modules() -> None:
    package = importlib.import_module("trinity.common.workflows")
    module = importlib.import_module("trinity.common.workflows.workflow")

    for name in ("Workflow", "SimpleWorkflow", "MathWorkflow"):
        assert getattr(package, name) is getattr(module, name)


def test_P067_resettable_is_believed_in_both_forms() -> None:
    class Method(OneAnswer):
        def resettable(self):
            return False

    class Attribute(OneAnswer):
        can_reset = True

    model = scripted_model("2")
    assert not Method(a_task(), model, []).resettable()
    assert Attribute(a_task(), model, []).resettable()


@pytest.mark.slow
def test_P064_P131_P132_the_guides_workflow_trains_and_gives_repeat_times_experiences(
    config_dict, write_yaml, tmp_path, trinity
) -> None:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "guide.py").write_text(GUIDE_WORKFLOW)
    stored = tmp_path / "stored.jsonl"
    config_dict["mode"] = "explore"
    config_dict["buffer"]["explorer_input"]["taskset"]["default_workflow_type"] = "guide_workflow"
    config_dict["buffer"]["trainer_input"] = {
        "experience_buffer": {"name": "s", "storage_type": "file", "path": str(stored)}
    }

    ended = trinity(
        "run", "--local", "--config", str(write_yaml(config_dict)), "--plugin-dir", str(plugins)
    )

    assert ended.returncode == 0, ended.stderr + ended.stdout
    rows = [json.loads(line) for line in stored.read_text().splitlines()]
    runs = [(row["eid"]["batch"], row["eid"]["task"], row["eid"]["run"]) for row in rows]
    assert len(rows) == len(set(runs)) == 8 * 4
    assert all(len(row["action_mask"]) == len(row["logprobs"]) for row in rows)


@pytest.mark.slow
def test_P057_and_P134_the_math_workflow_scores_without_a_reward_key(
    config_dict, write_yaml
) -> None:
    taskset = config_dict["buffer"]["explorer_input"]["taskset"]
    taskset["default_workflow_type"] = "math_workflow"
    del taskset["default_reward_fn_type"]

    result = trinity.run(load_config(write_yaml(config_dict)), local=True)

    lines = (result.directory / "monitor" / "metrics.jsonl").read_text().splitlines()
    rewards = [json.loads(line).get("rollout/reward/mean") for line in lines]
    assert any(reward is not None for reward in rewards)
