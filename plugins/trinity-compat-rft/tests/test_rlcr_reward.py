"""The reward of RLCR, by numbers worked out by hand."""

from __future__ import annotations

import pytest
from trinity.errors import ConfigError
from trinity_compat_rft.rewards.rlcr import RLCRRewardFn

ONES = dict.fromkeys(
    ["format", "accuracy", "brier", "mean_confidence", "confidence_one_or_zero"], 1.0
)


def said(answer="34", confidence="0.9", *, before="", after="", between=""):
    return (
        f"{before}<think>17 * 2</think>{between}<answer>{answer}</answer>"
        f"\n<analysis>easy</analysis>\n<confidence>{confidence}</confidence>{after}"
    )


@pytest.mark.parametrize(
    ("response", "scores"),  # format, accuracy, brier, mean_confidence, confidence_one_or_zero
    [
        (said(), [1, 1, 0.99, 0.9, 0]),  # 1 - (1 - 0.9)^2
        (said("35"), [1, 0, 0.19, 0.9, 0]),  # 1 - (0 - 0.9)^2
        (said(confidence="1"), [1, 1, 1, 1, 1]),
        (said("35", "0.005"), [1, 0, 0.999975, 0.005, 1]),
        (said(before="Well. <think>once</think> more "), [1, 1, 0.99, 0.9, 0]),
        (said(after="\n"), [1, 1, 0.99, 0.9, 0]),
        (said(after=" and more"), [0, 0, 0, 0.9, 0]),
        (said(between=" so "), [0, 0, 0, 0.9, 0]),
        (said(before="<answer>34"), [0, 0, 0, 0.9, 0]),  # opened in an open one
        (said(confidence="90"), [0, 0, 0, 0, 0]),
        (said(confidence="nan"), [0, 0, 0, 0, 0]),
        ("<confidence>0.5</confidence>", [0, 0, 0, 0.5, 0]),
        ("34", [0, 0, 0, 0, 0]),
        ("", [0, 0, 0, 0, 0]),
    ],
)
def test_the_parts_follow_the_answer_and_the_confidence(response, scores):
    given = RLCRRewardFn(ONES)(response, truth="34")

    assert list(given) == list(ONES)
    assert list(given.values()) == pytest.approx(scores)


def test_the_weights_are_those_of_the_publication():
    scores = RLCRRewardFn()(said(confidence="1"), truth="#### 34")

    assert sum(scores.values()) == pytest.approx(0.5 + 0.5 + 0.5 + 2e-5)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({**ONES, "breir": 1.0}, "breir"),
        ({"format": 1.0}, "lacks the weights accuracy, brier"),
        ({**ONES, "brier": "much"}, "brier of rlcr_reward is 'much'"),
        ({**ONES, "brier": float("inf")}, "infinite"),
    ],
)
def test_wrong_weights_are_refused_by_name(weights, words):
    with pytest.raises(ConfigError, match=words):
        RLCRRewardFn(weights)


def test_a_response_without_end_is_read_in_a_moment():
    scores = RLCRRewardFn()("<think>" + "a <b> " * 20_000 + "<answer>" * 2_000, truth="34")

    assert scores["format"] == 0.0
