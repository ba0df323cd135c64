"""Advantages of single tokens, with a critic."""

from __future__ import annotations

import math

import pytest
import torch
from trinity.algorithm.advantage_fn.token_level import PPOAdvantageFn
from trinity.common.batch import ExperienceBatch
from trinity.common.experience import Experience

HUGE = 1e30


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float64)


def a_batch(mask, *, uid=None, **fields):
    names = {"uid": uid or [str(row) for row in range(len(mask))]}
    rows = [Experience(tokens=[1, 2]) for _ in mask]
    given = {name: tensor(value) for name, value in fields.items()}
    given["action_mask"] = torch.tensor(mask).bool()
    return ExperienceBatch(rows, fields=given, non_tensor_fields=names)


def test_gae_skips_what_the_model_did_not_choose():
    # tokens 0 and 2 are steps, with V = 1, 2 and rewards 0, 5; gamma 1/2, lam 1
    # A_2 = 5 - 2 = 3; A_0 = (0 + 0.5 * 2 - 1) + 0.5 * 3 = 1.5; returns A + V
    batch = a_batch([[1, 0, 1]], token_level_rewards=[[0.0, HUGE, 5.0]], values=[[1.0, HUGE, 2.0]])
    batch, _ = PPOAdvantageFn(gamma=0.5)(batch)

    assert batch["returns"].tolist() == [[2.5, 0.0, 5.0]]
    # whitened: mean 2.25, sample deviation 0.75 sqrt(2)
    whitened = 0.75 / (0.75 * math.sqrt(2))
    assert batch["advantages"][0].tolist() == pytest.approx([-whitened, 0.0, whitened])


def test_gae_of_a_single_token_is_refused():
    batch = a_batch([[1]], token_level_rewards=[[1.0]], values=[[0.0]])
    with pytest.raises(ValueError, match="needs two unmasked values"):
        PPOAdvantageFn()(batch)
