"""How reward functions are called: as published, and with what their signatures name."""

from __future__ import annotations

import pytest
from trinity.common.config.check_args import argument_problems
from trinity.common.rewards import (
    AccuracyReward,
    CountDownRewardFn,
    FormatReward,
    MathBoxedRewardFn,
    MathRewardFn,
    RewardFn,
)
from trinity.common.rewards.calling import scores_of
from trinity.common.workflows import SimpleWorkflow
from trinity.extend import ComponentSpec
from trinity.extend.component import Component
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

TAGGED = "<think>a</think><answer>24</answer>"
GOAL = '{"target": 24, "numbers": [4, 6]}'
# What is called, its arguments by position and by name, and the sum of what it gives, by hand.
PUBLISHED_CALLS = {
    "accuracy, by place": (AccuracyReward(), ("24", "how many", "24"), {}, 1.0),
    "accuracy, by name": (AccuracyReward(), (), {"response": "24", "truth": "24"}, 1.0),
    "accuracy, own parser": (AccuracyReward(str.lower), ("A",), {"truth": "a"}, 1.0),
    "math": (MathRewardFn(), (TAGGED, None, "24"), {}, 1.1),
    "math, wrong": (MathRewardFn(), (TAGGED,), {"prompt": "?", "truth": "23"}, 0.1),
    "math, own form": (MathRewardFn(pattern=r"so \d+"), ("so 24",), {"truth": "24"}, 1.1),
    "math, own parser": (MathRewardFn(len, "x"), ("ab",), {"truth": "yz"}, 0.9),
    "boxed": (MathBoxedRewardFn(), (r"\boxed{24}", "24"), {}, 1.0),
    "boxed, options of the call": (
        MathBoxedRewardFn(),
        (),
        {"response": r"\boxed{24}", "truth": "24", "with_think": True, "format_score_coef": 0.2},
        0.8,
    ),
    "boxed, by place": (MathBoxedRewardFn(), (r"\boxed{23}", "24", True, 0.3), {}, -0.3),
    "format": (FormatReward(), ("<think>\na\n</think>\n<answer>\nb\n</answer>",), {}, 0.1),
    "format, own": (FormatReward(r"^a.*b$"), ("a\nb",), {}, 0.1),
    "format, own, missing": (FormatReward(r"^a.*b$"), ("b",), {}, -0.1),
    "countdown": (CountDownRewardFn(), ("<answer>4*6</answer>", None, GOAL), {}, 1.0),
    "countdown, wrong": (CountDownRewardFn(), ("<answer>4+6</answer>",), {"truth": GOAL}, 0.1),
}


@pytest.mark.parametrize("case", PUBLISHED_CALLS)
def test_a_published_call_gives_what_it_is_published_to_give(case) -> None:
    reward_fn, by_place, by_name, expected = PUBLISHED_CALLS[case]

    assert sum(reward_fn(*by_place, **by_name).values()) == pytest.approx(expected)


class TwoPlaces(RewardFn):
    def __call__(self, response, truth):
        return {"same": float(response == truth)}


class Keywords(RewardFn):
    def __call__(self, *, response, **kw):
        return {"same": float(response == kw["truth"]), "given": float(len(kw))}


class PositionsOnly(RewardFn):
    def __call__(self, truth, response, /):
        return {"same": float((truth, response) == ("46", "46"))}


class ReadsTheTask(RewardFn):
    def __call__(self, response, task, messages, response_token, info, weight=1.0):
        is_whole = task.truth == "46" and messages[-1]["content"] and "model_version" in info
        return {"whole": weight * float(bool(is_whole) and len(response_token) == 3)}


class WantsMore(RewardFn):
    def __call__(self, response, truth, weight):
        return {"x": weight}


CALLS = {TwoPlaces: {}, Keywords: {}, PositionsOnly: {}, ReadsTheTask: {"weight": 2.0}}
REWARDS = {TwoPlaces: 1.0, Keywords: 3.0, PositionsOnly: 1.0, ReadsTheTask: 2.0}


@pytest.mark.parametrize("cls", CALLS)
def test_a_reward_is_called_with_what_its_signature_names(cls) -> None:
    task = a_task(truth="46", reward_fn=cls, reward_fn_args=CALLS[cls])
    [answer] = SimpleWorkflow(task=task, model=model_over(ScriptedEngine("46"))).run()

    assert answer.reward == REWARDS[cls]


def problems(cls, args):
    component = Component(kind="reward_fn", name="mine", spec=ComponentSpec("x:Y"), origin=None)
    return list(argument_problems(component, cls, args))


def test_a_signature_that_nothing_can_fill_is_refused_with_its_place() -> None:
    [(name, message)] = problems(WantsMore, {})

    assert name == "weight"
    assert "wants 'weight' in each call (" in message
    assert f"test_reward_calls.py:{WantsMore.__call__.__code__.co_firstlineno})" in message


@pytest.mark.parametrize("cls", [*CALLS, AccuracyReward, MathBoxedRewardFn, CountDownRewardFn])
def test_signatures_that_can_be_filled_are_taken(cls) -> None:
    assert problems(cls, CALLS.get(cls, {})) == []
    assert problems(WantsMore, {"weight": 1.0}) == []


def test_an_option_of_reward_fn_args_reaches_the_call() -> None:
    offered = {"response": "a", "truth": "b", "prompt": "c"}

    assert scores_of(WantsMore(), offered=offered, options={"weight": 3.0}) == {"x": 3.0}


class Alone(RewardFn):
    def __call__(self, response, truth):
        return 0.5 if response == truth else False


def test_a_number_alone_is_a_reward() -> None:
    offered = {"response": "4", "truth": "4", "prompt": ""}

    assert scores_of(Alone(), offered=offered, options={}) == {"score": 0.5}
    assert scores_of(Alone(), offered={**offered, "truth": "5"}, options={}) == {"score": 0.0}
