"""002: the workflow development guide."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from trinity.buffer.task_source import Taskset
from trinity.common.config import FormatConfig, GenerationConfig, load_config
from trinity.common.experience import Experience
from trinity.common.workflows import Task, Workflow
from trinity.extend import PluginManager, set_manager
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over, scripted_model


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

    assert (workflow.task, workflow.model) == (task, model)
    assert workflow.auxiliary_models is None  # there are none


def test_P049_environment_classes_that_are_not_installed_name_their_package() -> None:
    from trinity.common import workflows

    assert workflows.MathWorkflow.__name__ == "MathWorkflow"
    before = set_manager(PluginManager.discover(env={}, entry_points=[]))
    try:
        with pytest.raises(ImportError, match="pip install trinity-envs-alfworld"):
            workflows.AlfworldWorkflow  # noqa: B018
    finally:
        set_manager(before)


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


def test_P050_an_experience_has_the_documented_fields() -> None:
    experience = Experience(tokens=[1, 2, 3], prompt_length=1, reward=0.5, logprobs=[-0.1, -0.2])

    assert experience.tokens.tolist() == [1, 2, 3]
    assert experience.logprobs.shape == (2,)
    assert isinstance(experience.reward, float)
    assert experience.action_mask.tolist() == [True, True]


def test_P050_importing_experience_imports_no_torch() -> None:
    code = "import sys, trinity.common.experience; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_P051_path_and_workflow_are_enough_for_a_taskset(tmp_path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "1+1="}\n{"question": "2+2="}\n')
    path = tmp_path / "run.yaml"
    path.write_text(
        "buffer:\n  explorer_input:\n    taskset:\n"
        f"      path: {tmp_path / 'rows.jsonl'}\n      default_workflow_type: math_workflow\n"
    )

    tasks = Taskset(load_config(path, env={}).buffer.explorer_input.taskset).tasks()

    assert [task.raw_task["question"] for task in tasks] == ["1+1=", "2+2="]
    assert {task.workflow for task in tasks} == {"math_workflow"}
