"""What the rewards of mathematical answers are worth."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest
from trinity.common.rewards import (
    REWARD_FUNCTIONS,
    AccuracyReward,
    CountDownRewardFn,
    FormatReward,
    MathBoxedRewardFn,
    MathRewardFn,
    RewardFn,
)
from trinity.common.rewards.equivalence import is_equivalent
from trinity.errors import JudgementCutError


def total(reward_fn, response, truth):
    return sum(reward_fn(response=response, truth=truth, prompt="").values())


@pytest.mark.parametrize(
    ("response", "worth"),
    [
        ("2", 0.9),  # right, without the tags: 1 - 0.1
        (r"The answer is \boxed{2}.", 0.9),
        ("<think>1 and 1</think><answer>2</answer>", 1.1),  # right, with the tags: 1 + 0.1
        ("<think>\nhm\n</think>\n<answer>\n$2$\n</answer>\n", 1.1),
        ("<think>hm</think><answer>3</answer>", 0.1),  # wrong, with the tags: 0 + 0.1
        ("3", -0.1),  # wrong, without: 0 - 0.1
        ("<think>open <answer>2", 0.9),
        ("<think>hm</think><answer>2</answer> so", 0.9),
        ("<think>hm</think><answer>1</answer><answer>2</answer>", 0.9),
        ("", -0.1),
    ],
)
def test_the_math_reward_is_one_for_the_answer_and_a_tenth_for_the_form(response, worth):
    assert total(MathRewardFn(), response, "2") == pytest.approx(worth)


@pytest.mark.parametrize("response", [r"\boxed{0.1}", r"\boxed{\frac{1}{10}}", "0.1000", "10%"])
def test_equal_values_in_other_forms_are_right(response):
    assert AccuracyReward()(response=response, truth=r"\frac{40}{400}") == {"accuracy": 1.0}


def test_the_truth_of_a_worked_solution_is_what_follows_the_four_hashes():
    solution = "She sold 48 / 2 = <<48/2=24>>24 clips in May.\n#### 24"

    assert AccuracyReward()(response="24", truth=solution) == {"accuracy": 1.0}


def test_a_parser_of_ones_own_decides_what_is_compared():
    reward = AccuracyReward(answer_parser=lambda text: text.split()[-1].lower())

    assert reward(response="it is PARIS", truth="Paris") == {"accuracy": 1.0}
    assert reward(response="it is Rome", truth="Paris") == {"accuracy": 0.0}


def test_the_score_of_the_form_is_an_argument():
    assert FormatReward(score=0.5)(response="no tags") == {"format_score": -0.5}


@pytest.mark.parametrize(
    ("response", "plain", "with_think"),
    [
        (r"<think> 99 </think> \boxed{36}", 1.0, 1.0),
        (r"6 + 30 = \boxed{36 }", 1.0, 0.8),  # no thinking: less 0.2
        (r"\boxed{35} no, \boxed{\frac{72}{2}}", 1.0, 0.8),
        (r"<think> hm </think> \boxed{35}", 0.0, 0.0),
        ("36", 0.0, -0.2),
        (r"\boxed{36", 0.0, -0.2),
    ],
)
def test_a_boxed_answer_is_right_or_wrong(response, plain, with_think):
    thinking = MathBoxedRewardFn(with_think=True, format_score_coef=0.2)

    assert total(MathBoxedRewardFn(), response, "36") == pytest.approx(plain)
    assert total(thinking, response, "36") == pytest.approx(with_think)


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("<answer>4 * 6</answer>", 1.0),
        ("<answer>(4 * 6) = 24</answer>", 1.0),
        ("<answer>24</answer>", 0.1),  # not the given numbers
        ("<answer>4 + 6</answer>", 0.1),  # not the target
        ("<answer>__import__('os')</answer>", 0.1),
        ("<answer>4 / 0</answer>", 0.1),
        ("<answer>" + "(" * 9999 + "</answer>", 0.1),
        ("4 * 6", 0.0),
    ],
)
def test_countdown_wants_each_number_once_and_the_target(response, score):
    for truth in ({"target": 24, "numbers": [4, 6]}, '{"target": 24, "numbers": [6, 4]}'):
        assert CountDownRewardFn()(response=response, truth=truth) == {"score": score}


@pytest.mark.parametrize(
    "text",
    [
        "$(x+1)^{100000}$",
        r"\boxed{\int e^{x^2} \sin(x^3) dx}",
        "((((x+1)^9+1)^9+1)^9+1)^9",
        "9" * 100_000,
        r"\frac{" * 2_000,
    ],
)
def test_what_would_take_for_ever_is_judged_at_once(text):
    began = time.monotonic()

    with suppress(JudgementCutError):
        AccuracyReward()(response=text, truth="x + 2")

    assert time.monotonic() - began < 100


def test_what_is_too_costly_is_right_when_it_is_written_alike():
    text = r"\boxed{\int e^{x^2} \sin(x^3) dx}"

    assert AccuracyReward()(response=text, truth=text) == {"accuracy": 1.0}


def test_rewards_work_outside_the_main_thread():
    scores = []
    thread = threading.Thread(
        target=lambda: scores.append(MathRewardFn()(response=r"\boxed{2}", truth="2"))
    )
    thread.start()
    thread.join(30)

    assert scores == [{"accuracy": 1.0, "format_score": -0.1}]


def test_the_built_in_rewards_are_registered():
    for name in ("math_reward", "format_reward", "accuracy_reward", "math_boxed_reward"):
        assert issubclass(REWARD_FUNCTIONS.get(name), RewardFn)


def test_a_reward_without_call_cannot_be_built():
    class Nothing(RewardFn):
        pass

    with pytest.raises(TypeError, match="__call__"):
        Nothing()


@pytest.mark.parametrize(
    ("response", "truth", "expected"),
    [
        ("7", "7", True),
        (" 07\n", "7", True),
        ("-7", "7", False),
        ("+7", "7", True),
        ("8", "7", False),
    ],
)
def test_whole_numbers_are_compared_as_numbers(response, truth, expected) -> None:
    assert is_equivalent(response, truth) is expected


def test_a_call_gives_a_boxed_reward_its_options_and_arguments_by_position() -> None:
    reward = MathBoxedRewardFn()

    assert reward("\\boxed{46}", "46", True, 0.2) == {"accuracy": 1.0, "format_score": -0.2}
    assert MathBoxedRewardFn(with_think=True)("\\boxed{46}", "46", False) == {"accuracy": 1.0}
