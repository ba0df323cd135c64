"""The workflows of one turn."""

from __future__ import annotations

import asyncio
import re

import numpy as np
import pytest
import torch
from trinity.common.config import FormatConfig, GenerationConfig
from trinity.common.rewards import RewardFn
from trinity.common.workflows import AsyncMathWorkflow, MathWorkflow, SimpleWorkflow, Task
from trinity.errors import ConfigError, EnvError, WorkflowError
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over, scripted_model

ONE_AND_ONE = {"q": "1+1=", "a": "2"}
KEYS = FormatConfig(prompt_key="q", response_key="a")


class LengthReward(RewardFn):
    def __init__(self, per_letter: float = 1.0):
        self.per_letter = per_letter

    def __call__(self, *, response, bonus=0.0, **kwargs):
        return {"letters": len(response) * self.per_letter, "bonus": bonus}


def the_prompt(engine: ScriptedEngine, number: int = -1) -> str:
    request = engine.exchanges[number].request
    return engine.tokenizer.decode(request.prompt_token_ids)


def test_math_workflow_scores_without_a_named_reward():
    model = scripted_model("2", "3", "<think>hm</think><answer>2</answer>")
    task = Task(workflow="math_workflow", raw_task=ONE_AND_ONE, format_args=KEYS, repeat_times=3)

    experiences = task.to_workflow(model).run()

    # right without the tags, wrong without them, right with them
    assert [e.reward for e in experiences] == pytest.approx([0.9, -0.1, 1.1])
    assert experiences[0].metrics == {"accuracy": 1.0, "format_score": -0.1}
    assert [e.eid.run for e in experiences] == [0, 1, 2]


def test_math_workflow_uses_the_keys_and_the_rollout_args():
    engine = ScriptedEngine("2", repeat=True)
    task = Task(
        workflow=MathWorkflow,
        raw_task=ONE_AND_ONE,
        format_args=KEYS,
        rollout_args=GenerationConfig(temperature=0.3, top_p=0.9, max_tokens=7),
        repeat_times=2,
    )

    task.to_workflow(model_over(engine)).run()

    request = engine.exchanges[0].request
    assert (request.temperature, request.top_p, request.max_new_tokens) == (0.3, 0.9, 7)
    assert request.n == 2
    assert "1+1=" in the_prompt(engine)
    assert "<think>" in the_prompt(engine)


@pytest.mark.parametrize(
    ("format_args", "row", "expected"),
    [
        (KEYS.model_copy(update={"system_prompt": "Be brief."}), ONE_AND_ONE, "Be brief."),
        (
            KEYS.model_copy(update={"system_prompt": "Be brief.", "system_prompt_key": "s"}),
            {**ONE_AND_ONE, "s": "Be long."},
            "Be long.",
        ),
    ],
)
def test_a_system_prompt_of_the_row_wins_over_the_configured_over_the_class(
    format_args, row, expected
):
    engine = ScriptedEngine("2")

    Task(workflow=MathWorkflow, raw_task=row, format_args=format_args).to_workflow(
        model_over(engine)
    ).run()

    assert expected in the_prompt(engine)
    assert "<think>" not in the_prompt(engine)


def test_a_workflow_with_another_reward_is_not_told_to_use_the_tags():
    engine = ScriptedEngine("2")
    task = Task(
        workflow=MathWorkflow, reward_fn="math_boxed_reward", raw_task=ONE_AND_ONE, format_args=KEYS
    )

    task.to_workflow(model_over(engine)).run()

    assert "<think>" not in the_prompt(engine)


def test_simple_workflow_without_a_reward_says_how_to_name_one():
    task = Task(workflow="simple_workflow", raw_task=ONE_AND_ONE, format_args=KEYS)

    with pytest.raises(ConfigError, match="default_reward_fn_type"):
        task.to_workflow(scripted_model())


def test_who_needs_a_reward_function_says_so_before_anything_runs():
    class ScoresItself(SimpleWorkflow):
        def reset(self, task):
            self.task = task

    class Asks(SimpleWorkflow):
        pass

    needs = [cls.needs_reward_fn for cls in (SimpleWorkflow, Asks, MathWorkflow, ScoresItself)]
    assert needs == [True, True, False, False]


def test_reward_args_go_to_the_constructor_or_to_the_call():
    task = Task(
        workflow=SimpleWorkflow,
        reward_fn=LengthReward,
        reward_fn_args={"per_letter": 0.5, "bonus": 2.0},
        raw_task=ONE_AND_ONE,
        format_args=KEYS,
    )

    (experience,) = task.to_workflow(scripted_model("four")).run()

    # 4 letters x 0.5, and the bonus of 2
    assert experience.metrics == {"letters": 2.0, "bonus": 2.0}
    assert experience.reward == 4.0


def test_the_trained_ids_are_those_of_the_engine():
    engine = ScriptedEngine("forty six")
    task = a_task(workflow=MathWorkflow)

    (experience,) = task.to_workflow(model_over(engine)).run()

    completion = engine.exchanges[0].completions[0]
    assert tuple(experience.tokens[experience.prompt_length :].tolist()) == completion.token_ids
    assert experience.logprobs.tolist() == pytest.approx(list(completion.logprobs))


def test_reset_equals_a_new_instance():
    other = Task(workflow=MathWorkflow, raw_task={"q": "2+2=", "a": "4"}, format_args=KEYS)
    engine = ScriptedEngine("4", repeat=True)
    workflow = Task(workflow=MathWorkflow, raw_task=ONE_AND_ONE, format_args=KEYS).to_workflow(
        model_over(engine)
    )

    workflow.reset(other)
    (experience,) = workflow.run()

    assert experience.reward == pytest.approx(0.9)
    assert "2+2=" in the_prompt(engine)
    assert "1+1=" not in the_prompt(engine)


def test_the_awaiting_form_gives_the_same():
    task = Task(workflow=AsyncMathWorkflow, raw_task=ONE_AND_ONE, format_args=KEYS)
    workflow = task.to_workflow(scripted_model("2"))

    (experience,) = asyncio.run(workflow.run_async())

    assert workflow.is_async
    assert not workflow.can_repeat
    assert experience.reward == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("parts", "reward"),
    [
        ({"right": 1, "short": True}, 2.0),
        ({"right": np.float32(0.5)}, 0.5),
        ({"right": torch.tensor(0.25)}, 0.25),
        ({}, 0.0),
    ],
)
def test_scores_of_any_kind_of_number_become_floats(parts, reward):
    class Scores(RewardFn):
        def __call__(self, **kwargs):
            return parts

    task = Task(raw_task=ONE_AND_ONE, reward_fn=Scores, format_args=KEYS)
    [response] = SimpleWorkflow(task=task, model=scripted_model("2")).run()

    assert (type(response.reward), response.reward) == (float, reward)
    assert all(type(value) is float for value in response.metrics.values())


class TakesNoKeywords(RewardFn):
    def __call__(self, text):
        return {"right": 1.0}


class ReturnsAList(RewardFn):
    def __call__(self, **kwargs):
        return [1.0]


class GivesNan(RewardFn):
    def __call__(self, **kwargs):
        return {"right": float("nan")}


class AsksAJudge(RewardFn):
    def __call__(self, **kwargs):
        raise EnvError("the judge sleeps")


def scored_by(reward_fn):
    task = Task(raw_task=ONE_AND_ONE, reward_fn=reward_fn, format_args=KEYS)
    return SimpleWorkflow(task=task, model=scripted_model("2")).run()


@pytest.mark.parametrize("reward_fn", [TakesNoKeywords, ReturnsAList, GivesNan])
def test_a_reward_function_that_fails_is_named_with_file_line_and_contract(
    reward_fn, golden
) -> None:
    with pytest.raises(WorkflowError) as raised:
        scored_by(reward_fn)

    text = re.sub(r"py:\d+", "py:<LINE>", str(raised.value))
    golden(text, f"reward_fails_{reward_fn.__name__}", FILE=__file__.removesuffix(".py"))


def test_an_error_that_a_reward_function_means_goes_through_as_it_is() -> None:
    with pytest.raises(EnvError, match="the judge sleeps"):
        scored_by(AsksAJudge)
