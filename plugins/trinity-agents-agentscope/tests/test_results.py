"""Which reward and which metrics a run has."""

from __future__ import annotations

from types import SimpleNamespace as Output

import pytest
from trinity.common.experience import Experience
from trinity.errors import WorkflowError
from trinity_agents_agentscope.functions import UserFunction
from trinity_agents_agentscope.results import Judged, judged, rewarded, worked


async def solve(task, model): ...


async def judge_it(task, response): ...


SOLVE = UserFunction(role="workflow_func", function=solve, names=frozenset({"task", "model"}))
JUDGE = UserFunction(role="judge_func", function=judge_it, names=frozenset({"task", "response"}))


def an_output(reward=None, response="4", metrics=None):
    return Output(reward=reward, response=response, metrics=metrics)


def an_experience() -> Experience:
    return Experience(tokens=[1, 2, 3], prompt_length=1, logprobs=[-0.1, -0.2])


def test_P102_without_a_judge_the_workflow_functions_reward_counts() -> None:
    assert judged(an_output(reward=0.5), None, by=SOLVE, judge=None).reward == 0.5


def test_P102_and_P104_a_judges_reward_wins() -> None:
    verdict = Output(reward=1.0, metrics=None)

    assert judged(an_output(reward=0.5), verdict, by=SOLVE, judge=JUDGE).reward == 1.0


def test_P157_the_metrics_of_both_are_kept_and_the_judges_win() -> None:
    output = an_output(metrics={"len": 3.0, "turns": 2})
    verdict = Output(reward=1.0, metrics={"len": 4.0})

    result = judged(output, verdict, by=SOLVE, judge=JUDGE)

    assert result.metrics == {"len": 4.0, "turns": 2.0}


def test_P105_a_judge_without_a_reward_is_a_failure_that_names_it() -> None:
    with pytest.raises(WorkflowError, match="judge_func judge_it gave no reward"):
        judged(an_output(reward=0.5), None, by=SOLVE, judge=JUDGE)


def test_P097_without_a_reward_anywhere_the_error_says_what_to_do() -> None:
    with pytest.raises(WorkflowError, match="there is no judge function"):
        judged(an_output(), None, by=SOLVE, judge=None)


@pytest.mark.parametrize("wrong", ["high", [1.0]])
def test_a_reward_that_is_no_number_names_its_function(wrong) -> None:
    with pytest.raises(WorkflowError, match="the reward of workflow_func solve is"):
        judged(an_output(reward=wrong), None, by=SOLVE, judge=None)


def test_metrics_that_are_no_numbers_name_their_function() -> None:
    with pytest.raises(WorkflowError, match="metric 'note' of workflow_func solve"):
        judged(an_output(reward=1.0, metrics={"note": "x"}), None, by=SOLVE, judge=None)


def test_a_workflow_function_that_returns_a_text_is_told_what_to_return() -> None:
    with pytest.raises(WorkflowError, match=r"solve returned a str. Return .*WorkflowOutput"):
        worked("4", by=SOLVE)


def test_P101_each_call_has_the_reward_and_the_last_one_the_metrics() -> None:
    calls = [an_experience(), an_experience()]

    kept = rewarded(calls, Judged(reward=0.5, metrics={"len": 3.0}), by=SOLVE)

    assert [experience.reward for experience in kept] == [0.5, 0.5]
    assert [experience.metrics or {} for experience in kept] == [{}, {"len": 3.0}]


def test_a_reward_without_a_call_of_the_model_trains_nothing() -> None:
    with pytest.raises(WorkflowError, match="asked its model nothing"):
        rewarded([], Judged(reward=1.0, metrics={}), by=SOLVE)
