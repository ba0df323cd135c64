"""Advantages of single tokens from a teacher, and with tokens left out by their entropy."""

from __future__ import annotations

import math

import pytest
import torch
from trinity.common.batch import ExperienceBatch
from trinity.common.experience import Experience
from trinity_algorithms.advantage_fn.distillation import JSDAdvantageFn, OnPolicyDistillAdvantageFn
from trinity_algorithms.advantage_fn.entropy_clip import CLIPBAdvantageFn, CLIPVAdvantageFn
from trinity_algorithms.advantage_fn.token_level import (
    REINFORCEPLUSPLUSAdvantageFn,
    REMAXAdvantageFn,
)

HUGE = 1e30


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float64)


def a_batch(mask, *, uid=None, **fields):
    names = {"uid": uid or [str(row) for row in range(len(mask))]}
    rows = [Experience(tokens=[1, 2]) for _ in mask]
    given = {name: tensor(value) for name, value in fields.items()}
    given["action_mask"] = torch.tensor(mask).bool()
    return ExperienceBatch(rows, fields=given, non_tensor_fields=names)


def test_what_the_teacher_finds_likelier_is_good():
    batch = a_batch(
        [[1, 1, 0]], old_logprob=[[-1.0, -1.0, HUGE]], teacher_logprobs=[[-0.5, -3.0, -HUGE]]
    )
    batch, metrics = OnPolicyDistillAdvantageFn(kl_coef=2.0)(batch)

    assert batch["advantages"].tolist() == [[1.0, -4.0, 0.0]]
    assert metrics == {"kl/mean": 1.5, "kl/std": 0.0, "advantages/mean": -3.0}


@pytest.mark.parametrize(
    ("beta", "score"),
    [(0.0, 2.0), (1.0, math.e**2 - 1), (0.5, 0.5 * math.log(0.5 + 0.5 * math.e**2))],
)
def test_jsd_runs_from_reverse_to_forward_kl(beta, score):
    batch = a_batch([[1]], old_logprob=[[-3.0]], teacher_logprobs=[[-1.0]])
    batch, _ = JSDAdvantageFn(lambda_coef=beta)(batch)

    assert batch["advantages"].item() == pytest.approx(score)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_jsd_agrees_with_the_gradient_of_the_divergence(beta):
    # d/ds of beta KL(t || mix) + (1 - beta) KL(s || mix) over a vocabulary of three
    teacher = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    student = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64, requires_grad=True)
    if beta == 0.0:
        divergence = (student * (student / teacher).log()).sum()
    elif beta == 1.0:
        divergence = (teacher * (teacher / student).log()).sum()
    else:
        mix = beta * teacher + (1 - beta) * student
        divergence = (beta * teacher * (teacher / mix).log()).sum()
        divergence = divergence + ((1 - beta) * student * (student / mix).log()).sum()
    (gradient,) = torch.autograd.grad(divergence, student)
    batch = a_batch(
        [[1, 1, 1]],
        old_logprob=[student.detach().log().tolist()],
        teacher_logprobs=[teacher.log().tolist()],
    )
    batch, _ = JSDAdvantageFn(lambda_coef=beta)(batch)

    constant = batch["advantages"][0] + gradient  # minus the derivative, up to a constant
    torch.testing.assert_close(constant, constant[:1].expand(3), rtol=0, atol=1e-12)


def test_jsd_of_a_far_teacher_is_finite():
    batch = a_batch([[1]], old_logprob=[[-500.0]], teacher_logprobs=[[-1.0]])

    assert JSDAdvantageFn(lambda_coef=1.0)(batch)[0]["advantages"].isfinite().all()


@pytest.mark.parametrize("gap", [-35.0, 35.0])
def test_reverse_kl_as_jsd_is_the_whole_difference_as_in_distillation(gap):
    batch = a_batch([[1]], old_logprob=[[-40.0]], teacher_logprobs=[[gap - 40.0]])

    assert JSDAdvantageFn(lambda_coef=0.0)(batch)[0]["advantages"].item() == gap
    assert OnPolicyDistillAdvantageFn()(batch)[0]["advantages"].item() == gap


def two_runs(*, changes, rewards=(1.0, 0.0)):
    """Return a good and a bad row of two tokens, with S = 0 and X = the changes."""
    return a_batch(
        [[1, 1], [1, 1]],
        uid=["a", "a"],
        token_level_rewards=[[0.0, rewards[0]], [0.0, rewards[1]]],
        old_logprob=[[-1.0, -1.0]] * 2,
        entropys=[[1.0, 1.0]] * 2,
        necs=changes,
    )


def test_clipb_masks_bad_tokens_far_below_the_mean():
    batch = two_runs(changes=[[0.0, 0.0]] * 2)
    batch["entropys"] = tensor([[1.0, 1.0], [1.0, -9.0]])  # S is 0 but for the last token
    batch, metrics = CLIPBAdvantageFn(mu=1.0)(batch)

    assert batch["action_mask"].tolist() == [[True, True], [True, False]]
    assert metrics["frac_clipped"] == 0.25
    assert metrics["frac_clipped_neg"] == 0.5


def test_clipv_gives_up_no_more_than_the_cap_of_the_bad_tokens():
    # both bad tokens violate; a cap of one token takes the larger
    batch = two_runs(changes=[[0.0, 0.0], [5.0, 6.0]])
    batch, metrics = CLIPVAdvantageFn(mu=0.1, max_frac=0.25)(batch)

    assert batch["action_mask"].tolist() == [[True, True], [True, False]]
    assert metrics["frac_clipped"] == 0.25


def test_clipv_drops_violators_of_advantage_0_beside_the_cap():
    # equal rewards: A = 0 everywhere, all that violate go, however many
    batch = two_runs(changes=[[5.0, 0.0], [5.0, 6.0]], rewards=(1.0, 1.0))
    batch, _ = CLIPVAdvantageFn(mu=0.1, max_frac=0.25)(batch)

    assert batch["action_mask"].tolist() == [[False, True], [False, False]]


def test_clipv_drops_violators_of_advantage_0_where_the_bad_ones_are_capped():
    # of two bad violators the larger goes, and both of A = 0 beside it
    batch = a_batch(
        [[1, 1]] * 4,
        uid=["a", "a", "b", "b"],
        token_level_rewards=[[0.0, 1.0], [0.0, 0.0], [0.0, 2.0], [0.0, 2.0]],
        old_logprob=[[-1.0, -1.0]] * 4,
        entropys=[[1.0, 1.0]] * 4,
        necs=[[0.0, 0.0], [5.0, 6.0], [5.0, 0.0], [0.0, 5.0]],
    )
    batch, _ = CLIPVAdvantageFn(mu=0.1, max_frac=0.125)(batch)

    assert batch["action_mask"].int().tolist() == [[1, 1], [1, 0], [0, 1], [1, 0]]


def test_clipv_without_any_spread_violates_above_0():
    # X = 1 everywhere, deviation 0: the bad tokens violate, one may go
    batch, metrics = CLIPVAdvantageFn(max_frac=0.25)(two_runs(changes=[[1.0, 1.0]] * 2))

    assert metrics["stdD"] == 0.0
    assert batch["action_mask"].sum().item() == 3
    assert batch["action_mask"][0].all()


def test_remax_subtracts_the_greedy_reward_and_leaves_masked_rewards_out():
    batch = a_batch([[1, 0, 1]], token_level_rewards=[[1.0, HUGE, 4.0]], reward_baselines=[2.0])
    batch, _ = REMAXAdvantageFn()(batch)

    assert batch["advantages"].tolist() == [[3.0, 0.0, 2.0]]  # 5 - 2, masked, 4 - 2


def test_reinforce_plus_plus_discounts_over_the_models_tokens_only():
    batch = a_batch([[1, 0, 1]], token_level_rewards=[[1.0, HUGE, 4.0]])
    batch, _ = REINFORCEPLUSPLUSAdvantageFn(gamma=0.5)(batch)

    assert batch["returns"].tolist() == [[3.0, 0.0, 4.0]]  # 1 + 0.5 * 4
