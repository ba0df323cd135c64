"""How a workflow class is written, found and built."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import warnings

import pytest
import trinity.common.workflows
from trinity.common.config import FormatConfig, GenerationConfig
from trinity.common.workflows import WORKFLOWS, Task, Workflow
from trinity.errors import DataError
from trinity.extend import PluginManager, set_manager
from trinity_testing.builders import a_task
from trinity_testing.scripted_model import scripted_model


class Plain(Workflow):
    def run(self):
        return []


class Awaiting(Workflow):
    async def run_async(self):
        await asyncio.sleep(0)
        return ["awaited"]


def older_class():
    class Older(Workflow):
        def __init__(self, model, task, auxiliary_models):
            super().__init__(model, task, auxiliary_models)

        def run(self):
            return []

    return Older


def test_the_base_class_keeps_what_it_is_built_with():
    task, model, others = a_task(), scripted_model(), ["judge"]

    workflow = Plain(task=task, model=model, auxiliary_models=others)

    assert (workflow.task, workflow.model, workflow.auxiliary_models) == (task, model, others)
    assert workflow.repeat_times == 1


def test_the_older_positional_order_works_and_warns_once_with_the_form_to_write():
    task, model, cls = a_task(), scripted_model(), older_class()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = cls(task=task, model=model, auxiliary_models=["judge"])
        cls(task=task, model=model, auxiliary_models=None)

    assert (first.task, first.model, first.auxiliary_models) == (task, model, ["judge"])
    assert [w.category for w in caught] == [DeprecationWarning]
    assert "super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)" in str(
        caught[0].message
    )


def test_a_task_first_is_refused():
    with pytest.raises(TypeError, match="task=task, model=model"):
        Plain(a_task(), scripted_model())


def test_an_argument_given_twice_is_refused():
    with pytest.raises(TypeError, match="model twice"):
        Plain(scripted_model(), task=a_task(), model=scripted_model())


def test_a_missing_argument_is_named():
    with pytest.raises(TypeError, match="missing the keyword model"):
        Plain(task=a_task())


def test_a_class_without_run_cannot_be_built_and_the_error_names_run():
    class Nothing(Workflow):
        pass

    with pytest.raises(TypeError, match="run"):
        Nothing(task=a_task(), model=scripted_model())


def test_run_async_alone_is_enough():
    workflow = Awaiting(task=a_task(), model=scripted_model())

    assert workflow.is_async
    assert workflow.run() == ["awaited"]


def test_a_blocking_workflow_can_be_awaited_too():
    workflow = Plain(task=a_task(), model=scripted_model())

    assert not workflow.is_async
    assert asyncio.run(workflow.run_async()) == []


def test_a_subclass_that_overrides_only_run_blocks_again():
    class Again(Awaiting):
        def run(self):
            return ["blocking"]

    assert not Again.is_async


def test_resettable_follows_can_reset_unless_it_is_overridden():
    class Resets(Plain):
        can_reset = True

    class Never(Resets):
        def resettable(self):
            return False

    assert Resets(task=a_task(), model=scripted_model()).resettable()
    assert not Never(task=a_task(), model=scripted_model()).resettable()


def test_a_class_registered_by_the_decorator_is_found():
    @WORKFLOWS.register_module("contract_test_workflow", force=True)
    class Found(Plain):
        pass

    built = Task(workflow="contract_test_workflow").to_workflow(scripted_model())

    assert isinstance(built, Found)
    assert built.auxiliary_models is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("AlfworldWorkflow", "pip install trinity-envs-alfworld"),
        ("AgentScopeReactMathWorkflow", "pip install trinity-agents-agentscope"),
    ],
)
def test_a_class_of_a_plugin_that_is_not_installed_says_how_to_get_it(name, said):
    before = set_manager(PluginManager.discover(env={}, entry_points=[]))
    try:
        with pytest.raises(ImportError, match=said):
            getattr(trinity.common.workflows, name)
    finally:
        set_manager(before)


def test_an_unknown_class_is_no_attribute():
    with pytest.raises(AttributeError, match="NoSuchWorkflow"):
        _ = trinity.common.workflows.NoSuchWorkflow


def test_a_task_passes_auxiliary_models_by_keyword_to_a_class_that_has_no_default():
    class Demands(Workflow):
        def __init__(self, task, model, auxiliary_models):
            super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)

        def run(self):
            return []

    built = Task(workflow=Demands).to_workflow(scripted_model())

    assert built.auxiliary_models is None


def test_temperature_and_n_of_a_task_are_always_numbers():
    task = Task(rollout_args=GenerationConfig())

    assert (task.rollout_args.temperature, task.rollout_args.n) == (1.0, 1)


def test_the_task_reads_prompt_and_truth_by_the_configured_keys():
    task = Task(
        raw_task={"q": "1+1=", "a": "2"}, format_args=FormatConfig(prompt_key="q", response_key="a")
    )

    assert (task.task_desc, task.truth) == ("1+1=", "2")


def test_a_row_without_the_prompt_key_says_where_and_what_it_has(golden):
    task = Task(
        raw_task={"qestion": "1+1=", "answer": "2"},
        format_args=FormatConfig(prompt_key="question"),
        origin="tasks.jsonl, row 3",
    )

    with pytest.raises(DataError) as caught:
        _ = task.task_desc

    golden(str(caught.value), "row_without_prompt_key")


def test_a_row_without_an_answer_has_no_truth_unless_the_key_was_configured():
    assert Task(raw_task={"game_file": "x"}).truth is None
    with pytest.raises(DataError, match=r"format\.response_key"):
        _ = Task(raw_task={"q": "1"}, format_args=FormatConfig(response_key="a")).truth


def test_importing_workflows_and_rewards_imports_nothing_heavy():
    code = (
        "import sys, trinity.common.workflows, trinity.common.rewards;"
        "print([m for m in ('torch', 'math_verify', 'sympy', 'datasets', 'transformers', 'numpy')"
        " if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
