from __future__ import annotations

import math

import pytest
import torch
from trinity.algorithm.kl_fn import K2KLFn, NoKLFn
from trinity.common.batch import ExperienceBatch
from trinity.common.experience import Experience
from trinity.extend import get_manager


def test_k2_of_a_difference_of_2_is_2():
    kl = K2KLFn().calculate_kl(torch.tensor([[-1.0]]), torch.tensor([[-3.0]]))

    assert kl.item() == 2.0


def test_as_a_loss_k2_adds_its_coefficient_times_its_value():
    loss, metrics = K2KLFn(kl_coef=0.1).calculate_kl_loss(
        torch.tensor([[-1.0, 1e30]]), torch.tensor([[-3.0, -1e30]]), torch.tensor([[1, 0]])
    )

    assert loss.item() == pytest.approx(0.2)
    assert metrics == {"kl_loss": pytest.approx(2.0), "kl_coef": 0.1}


def test_as_a_penalty_k2_lowers_the_reward_of_each_token():
    row = Experience(tokens=[1, 2, 3], prompt_length=1, reward=1.0, logprobs=[-1.0, -1.0])
    batch = ExperienceBatch.from_experiences([row])
    batch["ref_logprob"] = torch.tensor([[-3.0, -1.0]])

    batch, metrics = K2KLFn(kl_coef=0.1).apply_kl_penalty_to_reward(batch)

    # k2 = 2 at the first token, 0 at the second, which carries the reward of 1
    assert batch["token_level_rewards"].tolist() == [[pytest.approx(-0.2), 1.0]]
    assert metrics == {"kl": pytest.approx(1.0), "kl_coef": 0.1}


@pytest.mark.parametrize("name", ["target_kl", "horizon"])
def test_an_adaptive_coefficient_divides_by_no_0(name):
    given = {"target_kl": 0.1, "horizon": 10.0} | {name: 0.0}

    with pytest.raises(ValueError, match=f"{name} is 0.0; it must be above 0"):
        K2KLFn(adaptive=True, **given)
    K2KLFn(adaptive=False, **given)


def test_an_adaptive_coefficient_needs_a_target():
    with pytest.raises(ValueError, match="adaptive needs target_kl and horizon"):
        K2KLFn(adaptive=True)


ALL = ["k1", "k2", "k3", "low_var_kl", "abs", "corrected_k3"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k1", 2.0),
        ("k2", 2.0),
        ("k3", math.exp(-2.0) + 1.0),
        ("low_var_kl", math.exp(-2.0) + 1.0),
        ("abs", 2.0),
        ("corrected_k3", 2.0 * (math.exp(-2.0) + 1.0)),  # the ratio e^1 is cut at 2
    ],
)
def test_estimates_of_a_token_that_the_policy_finds_e_squared_times_likelier(name, value):
    kl_fn = get_manager().load("kl_fn", name)()
    kl = kl_fn.calculate_kl(torch.tensor([[-1.0]]), torch.tensor([[-3.0]]), torch.tensor([[-2.0]]))

    assert kl.item() == pytest.approx(value)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("distance", [200.0, -200.0])
def test_a_distance_of_200_has_a_finite_gradient_in_float32(name, distance):
    logprob = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    reference = torch.tensor([[-1.0 + distance, -2.0]])
    kl_fn = get_manager().load("kl_fn", name)(kl_coef=0.1)
    loss, _ = kl_fn.calculate_kl_loss(logprob, reference, torch.tensor([[1, 1]]), "token-mean")
    loss.backward()

    assert loss.isfinite()
    assert logprob.grad.isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_an_estimate_does_not_see_masked_tokens(name):
    kl_fn = get_manager().load("kl_fn", name)(kl_coef=1.0)
    mask = torch.tensor([[True, False]])
    logprob = torch.tensor([[-1.0, math.nan]], requires_grad=True)
    loss, _ = kl_fn.calculate_kl_loss(
        logprob, torch.tensor([[-1.5, 1e30]]), mask, "token-mean", torch.tensor([[-1.2, -1e30]])
    )
    loss.backward()

    assert loss.isfinite()
    assert logprob.grad[0, 1].item() == 0.0


def test_the_estimate_for_older_samples_is_k3_as_a_penalty():
    old, reference = torch.tensor([[-1.0]]), torch.tensor([[-3.0]])
    corrected, k3 = (get_manager().load("kl_fn", name)() for name in ("corrected_k3", "k3"))

    assert corrected.calculate_kl(old, reference) == k3.calculate_kl(old, reference)


def test_only_a_coefficient_that_is_not_0_needs_the_reference():
    assert K2KLFn().needs_reference
    assert not K2KLFn(kl_coef=0.0).needs_reference
    assert not NoKLFn(kl_coef=0.1).needs_reference
