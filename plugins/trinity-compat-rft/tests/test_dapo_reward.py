"""The reward of DAPO, by numbers worked out by hand."""

from __future__ import annotations

import pytest
from trinity.errors import ConfigError
from trinity_compat_rft.rewards.dapo import MathDAPORewardFn

LONG = {
    "enable_overlong_penalty": True,
    "penalty_factor": 1.0,
    "max_response_length": 100,
    "cache_length": 20,
}


@pytest.mark.parametrize(
    ("response", "accuracy"),
    [
        ("<think>17 * 2</think> So it is \\boxed{34}.", 1.0),
        ("<think>\\boxed{34}</think> So it is \\boxed{35}.", -1.0),  # what was thought is no answer
        ("Twice seventeen.\nAnswer: 34", 1.0),
        ("Answer: $34$", 1.0),
        ("34", 1.0),
        ("", -1.0),
    ],
)
def test_a_right_answer_is_worth_1_and_a_wrong_one_less_1(response, accuracy) -> None:
    scores = MathDAPORewardFn()(response, truth="34")

    assert scores == {"accuracy": accuracy, "format_score": 0.0}


@pytest.mark.parametrize(
    ("num_tokens", "penalty"),
    [
        (80, 0.0),  # 100 - 20: nothing yet
        (85, -0.25),  # (80 - 85) / 20
        (100, -1.0),
        (101, -1.0),
        (500, -1.0),
    ],
)
def test_the_penalty_rises_over_the_last_tokens(num_tokens, penalty) -> None:
    scores = MathDAPORewardFn(**LONG)("\\boxed{34}", range(num_tokens), "34")

    assert scores == {"accuracy": 1.0, "format_score": penalty}


def test_the_factor_scales_the_penalty() -> None:
    reward = MathDAPORewardFn(**{**LONG, "penalty_factor": 0.5})

    assert reward("x", response_token=range(90), truth="34")["format_score"] == -0.25


def test_what_was_taken_for_the_answer_is_noted() -> None:
    info = {}

    MathDAPORewardFn()("It is \\boxed{\\frac{1}{2}}.", truth="0.5", info=info)

    assert info == {"ground_truth": "0.5", "extracted_answer": "\\frac{1}{2}"}


def test_a_penalty_without_its_numbers_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs max_response_length, penalty_factor"):
        MathDAPORewardFn(enable_overlong_penalty=True)
    with pytest.raises(ConfigError, match="cache_length is 100 and max_response_length 100"):
        MathDAPORewardFn(**{**LONG, "cache_length": 100})


def test_a_penalty_without_tokens_names_the_workflow_that_gives_them() -> None:
    with pytest.raises(ConfigError, match="Use math_boxed_workflow"):
        MathDAPORewardFn(**LONG)(response="34", truth="34")
