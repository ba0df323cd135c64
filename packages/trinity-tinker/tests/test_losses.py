"""Each loss is the sum of its formula, and its gradient that of finite differences."""

from __future__ import annotations

import math

import pytest
import torch
from trinity_tinker.losses import LOSSES, loss_of
from trinity_tinker.refusal import Refused

LOGPROB = [-0.5, -1.0, -2.0]
SAMPLED = [-0.6, -1.5, -1.5]
ADVANTAGES = [1.0, 2.0, -1.0]
R = [math.exp(one - other) for one, other in zip(LOGPROB, SAMPLED, strict=True)]
CLIPPED = [min(max(one, 0.8), 1.2) for one in R]  # 1.105, 1.649 and 0.607: in, above, below

EXPECTED = {
    "cross_entropy": -(1.0 * -0.5 + 0.5 * -1.0 + -2.0 * -2.0),
    "importance_sampling": -(R[0] * 1.0 + R[1] * 2.0 + R[2] * -1.0),
    # an advantage above 0 takes the smaller ratio, one below 0 the larger
    "ppo": -(R[0] * 1.0 + 1.2 * 2.0 + 0.8 * -1.0),
    "cispo": -(CLIPPED[0] * -0.5 * 1.0 + 1.2 * -1.0 * 2.0 + 0.8 * -2.0 * -1.0),
    # A * logprob - 0.25 * change^2
    "dro": -((-0.5 - 0.25 * 0.01) + (-2.0 - 0.25 * 0.25) + (2.0 - 0.25 * 0.25)),
}


def fields(name: str) -> dict[str, torch.Tensor]:
    if name == "cross_entropy":
        return {"weights": torch.tensor([1.0, 0.5, -2.0], dtype=torch.float64)}
    return {
        "logprobs": torch.tensor(SAMPLED, dtype=torch.float64),
        "advantages": torch.tensor(ADVANTAGES, dtype=torch.float64),
    }


def settings(name: str) -> dict[str, float]:
    return loss_of(name).settings_with(name, {"beta": 0.5} if name == "dro" else {})


def value(name: str, logprob: torch.Tensor) -> torch.Tensor:
    return loss_of(name).formula(logprob, fields(name), settings(name))


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_the_sum_of_its_formula(name):
    found = value(name, torch.tensor(LOGPROB, dtype=torch.float64))

    assert float(found) == pytest.approx(EXPECTED[name], abs=1e-12)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "cispo"])
def test_a_gradient_is_that_of_finite_differences(name):
    logprob = torch.tensor(LOGPROB, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(lambda one: value(name, one), (logprob,), eps=1e-6)


def test_cispo_has_no_gradient_by_the_ratio():
    logprob = torch.tensor(LOGPROB, dtype=torch.float64, requires_grad=True)
    value("cispo", logprob).backward()

    expected = [-CLIPPED[0] * 1.0, -1.2 * 2.0, -0.8 * -1.0]
    assert logprob.grad.tolist() == pytest.approx(expected, abs=1e-12)


def test_ppo_has_no_gradient_where_it_clips():
    logprob = torch.tensor(LOGPROB, dtype=torch.float64, requires_grad=True)
    value("ppo", logprob).backward()

    assert logprob.grad.tolist() == pytest.approx([-R[0], 0.0, 0.0], abs=1e-12)


def test_clips_are_0_8_and_1_2_where_none_are_given():
    assert settings("ppo") == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("ppo", {"clip_low": 0.9}, "no setting 'clip_low'"),
        ("ppo", {"clip_low_threshold": "0.9"}, "is a number, not '0.9'"),
        ("ppo", {"clip_low_threshold": 1.5}, "clip nothing"),
        ("cross_entropy", {"beta": 1.0}, "its settings: none"),
        ("dro", {}, "needs the setting 'beta'"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_by_name(name, given, told):
    with pytest.raises(Refused, match=told):
        loss_of(name).settings_with(name, given)


@pytest.mark.parametrize("name", ["gspo", "stable_reinforce", "custom", "grpo"])
def test_a_loss_that_is_not_there_is_refused_by_name(name):
    with pytest.raises(Refused, match=name):
        loss_of(name)
