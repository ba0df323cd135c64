"""What workflows written for Trinity-RFT read of their task, their model and themselves."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from openai import AsyncOpenAI, OpenAI
from trinity.common.config import Config, FormatConfig, GenerationConfig
from trinity.common.rewards import MathRewardFn
from trinity.common.workflows import MathWorkflow, Task, Workflow
from trinity_testing.builders import a_task
from trinity_testing.scripted_model import scripted_model


class Plain(Workflow):
    can_repeat = True

    async def run_async(self):
        return []


def test_there_are_no_auxiliary_models_or_a_list_of_them():
    alone = Plain(task=a_task(), model=scripted_model(), auxiliary_models=[])
    judged = Plain(task=a_task(), model=scripted_model(), auxiliary_models=["judge"])

    assert alone.auxiliary_models is alone.auxiliary_model_wrappers is None
    assert judged.auxiliary_models == judged.auxiliary_model_wrappers == ["judge"]
    assert a_task(workflow=Plain).to_workflow(scripted_model()).auxiliary_models is None


class Judged(Workflow):
    def run(self):
        return [self.auxiliary_models[0].chat.completions.create(**ASKED)]


class JudgedLater(Workflow):
    async def run_async(self):
        return [await self.auxiliary_models[0].chat.completions.create(**ASKED)]


ASKED = {"model": "scripted", "messages": [{"role": "user", "content": "Is it right?"}]}


@pytest.mark.parametrize(("cls", "client"), [(Judged, OpenAI), (JudgedLater, AsyncOpenAI)])
def test_a_judge_is_awaited_where_the_workflow_awaits(cls, client):
    judge = scripted_model("yes")

    workflow = a_task(workflow=cls).to_workflow(scripted_model(), [judge])
    (reply,) = asyncio.run(workflow.run_async())

    assert isinstance(workflow.auxiliary_models[0], client)
    assert workflow.auxiliary_model_wrappers == [judge]
    assert reply.choices[0].message.content == "yes"
    assert judge.extract_experience_from_history() == []  # nothing of a judge is recorded
    judge.close_endpoints()


def test_a_workflow_says_what_it_can_under_the_published_names():
    workflow = Plain(task=a_task(), model=scripted_model())

    assert workflow.repeatable
    assert workflow.asynchronous
    assert not MathWorkflow(task=a_task(), model=scripted_model()).asynchronous


def test_a_task_gives_its_row():
    row = {"prompt": "1 + 1?"}

    assert Task(raw_task=row).to_dict() is row


def test_the_arguments_of_a_task_are_taken_for_dataclasses():
    task = Task(rollout_args=GenerationConfig(temperature=0.5, max_tokens=8))

    args = dataclasses.asdict(task.rollout_args)

    assert (args["temperature"], args["max_tokens"], args["n"]) == (0.5, 8, 1)
    assert dataclasses.replace(task.rollout_args, n=3).n == 3
    assert dataclasses.asdict(FormatConfig(prompt_key="question"))["prompt_key"] == "question"


def test_a_simple_workflow_keeps_the_arguments_of_its_task():
    task = a_task(reward_fn_args={})

    workflow = MathWorkflow(task=task, model=scripted_model())

    assert workflow.format_args is task.format_args
    assert workflow.reward_fn_args is task.reward_fn_args


def test_a_task_may_hold_the_class_of_its_reward():
    task = a_task(reward_fn="math_reward").with_reward_class()

    workflow = MathWorkflow(task=task, model=scripted_model())

    assert task.reward_fn is MathRewardFn
    assert type(workflow.reward_fn) is MathRewardFn
    assert workflow.system_prompt == MathWorkflow.default_system_prompt
    assert task.with_reward_class() is task


def test_a_configuration_is_flat_under_both_names():
    config = Config()

    assert config.flatten() == config.flat()
    assert config.flatten()["buffer.batch_size"] == config.buffer.batch_size


def test_a_model_counts_the_tokens_of_a_conversation():
    model = scripted_model("a reply")
    messages = [{"role": "user", "content": "one two"}]

    count = asyncio.run(model.get_message_token_len(messages))

    assert count == model.chat(messages)[0].prompt_length
