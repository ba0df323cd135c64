"""A teacher says how likely each token of the student's answer is."""

from __future__ import annotations

import asyncio

import pytest
import torch
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.workflows import WORKFLOWS
from trinity.errors import ConfigError
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over, script_tokenizer

PLAIN, MATHS = "on_policy_distill_workflow", "on_policy_distill_math_workflow"


def answered(name, *answers, teacher=None, **fields):
    """Return the experiences of a student that says these answers."""
    task = a_task(workflow=name, repeat_times=len(answers), **fields)
    teacher = teacher or model_over(ScriptedEngine())
    workflow = task.to_workflow(model_over(ScriptedEngine(*answers)), [teacher])
    workflow.set_repeat_times(len(answers), 3)
    return asyncio.run(workflow.run_async())


def test_each_token_has_the_teachers_log_probability_and_the_gap_is_a_metric() -> None:
    first, second = answered(PLAIN, "ab", "c")  # a token a letter, and the end of the turn

    start = first.prompt_length - 1  # the script's teacher says -(1 + place % 15) / 16
    expected = [-(1 + (start + place) % 15) / 16 for place in range(3)]
    assert first.teacher_logprobs.tolist() == pytest.approx(expected)
    assert len(second.teacher_logprobs) == second.response_length == 2
    student = [-1 / 16, -2 / 16, -3 / 16]
    assert first.metrics["kl_divergence"] == pytest.approx(sum(student) - sum(expected))
    assert (first.reward, first.eid.run, second.eid.run) == (0.0, 3, 4)


class Noted(ScriptedEngine):
    """Notes the temperature that it scores at."""

    heat = None

    def score(self, token_ids, temperature=1.0):
        self.heat = temperature
        return super().score(token_ids, temperature)


@pytest.mark.parametrize(("arguments", "heat"), [({}, 1.0), ({"temperature": 0.5}, 0.5)])
def test_the_teachers_temperature_is_an_argument(arguments, heat) -> None:
    engine = Noted()

    answered(PLAIN, "a", teacher=model_over(engine), workflow_args=arguments)

    assert engine.heat == heat


def test_a_right_answer_is_worth_1_and_the_question_asks_for_a_box() -> None:
    right, wrong = answered(MATHS, "It is \\boxed{46}.", "47")

    assert (right.reward, right.metrics["accuracy"]) == (1.0, 1.0)
    assert (wrong.reward, wrong.metrics["accuracy"]) == (0.0, 0.0)
    assert "give the final answer in \\boxed{}" in right.prompt_text
    assert torch.isfinite(right.teacher_logprobs).all()


def test_an_answer_that_nobody_can_judge_costs_its_own_run_alone() -> None:
    cut, right = answered(MATHS, "\\boxed{9^{9^{9^9}}}", "\\boxed{46}")

    assert (cut.reward, right.reward) == (None, 1.0)
    assert "cannot be said" in cut.info["not_judged"]


class OtherWords(ChatFormat):
    """A tokenizer to which the same ids are other words."""

    def decode(self, token_ids, *, skip_special_tokens=True):
        return super().decode(token_ids, skip_special_tokens=skip_special_tokens).upper()


def test_a_teacher_with_another_tokenizer_ends_the_run_before_anything_false_is_learned() -> None:
    usual = model_over(ScriptedEngine())
    other = ModelWrapper(ScriptedEngine(), OtherWords(script_tokenizer()), usual.settings)

    with pytest.raises(ConfigError, match=r"'ab.*' with are 'AB.*' to its teacher"):
        answered(PLAIN, "ab", teacher=other)


@pytest.mark.parametrize("name", [PLAIN, MATHS])
def test_no_teacher_is_said_before_anything_is_asked(name) -> None:
    with pytest.raises(ConfigError, match=r"its teacher is explorer\.auxiliary_models\[0\]"):
        a_task(workflow=name).to_workflow(model_over(ScriptedEngine()))


def test_a_subclass_may_reward_as_it_likes() -> None:
    class Longer(WORKFLOWS.get(PLAIN)):
        def compute_reward(self, response):
            return float(response.response_length)

    (experience,) = answered(Longer, "abc")

    assert experience.reward == 4.0
