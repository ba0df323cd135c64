"""Rows share micro-batches, and are scored as each alone."""

from __future__ import annotations

import pytest
import torch
from trinity_tinker.scored_rows import ScoredRow, backward


@pytest.fixture
def trainer(base):
    lora = {"rank": 4, "train_attn": True, "train_mlp": True, "train_unembed": True}
    base.trainer.begin("a", base.adapter({**lora, "seed": 1, "alpha": 32}), seed=1)
    return base.trainer


def a_row(num_tokens: int, *, seed: int) -> ScoredRow:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 384, (num_tokens + 1,), generator=generator)
    return ScoredRow(tokens_L=tokens[:-1], slots_N=torch.arange(num_tokens), targets_N=tokens[1:])


def negative_logprob(number: int, logprob_N: torch.Tensor) -> torch.Tensor:
    return -(number + 1) * logprob_N.sum()


def scored(trainer, rows, *, max_tokens=4096):
    how = {"max_tokens": max_tokens, "forward_only": True}
    return backward(trainer, "a", rows, negative_logprob, **how)


def test_rows_of_any_length_are_scored_as_each_alone(trainer):
    rows = [a_row(7, seed=1), a_row(3, seed=2), a_row(12, seed=3), a_row(3, seed=4)]
    alone = [scored(trainer, [row])[0][0] for row in rows]

    for max_tokens in (4096, 14, 1):
        found, loss = scored(trainer, rows, max_tokens=max_tokens)
        for one, expected in zip(found, alone, strict=True):
            assert torch.allclose(one, expected, atol=1e-5)
        expected = -sum((n + 1) * float(one.sum()) for n, one in enumerate(alone))
        assert loss == pytest.approx(expected, rel=1e-6)


def test_a_place_may_have_several_targets_or_none(trainer):
    tokens = torch.tensor([5, 6, 7])
    row = ScoredRow(
        tokens_L=tokens, slots_N=torch.tensor([2, 0, 2]), targets_N=torch.tensor([8, 6, 9])
    )
    last, first = (
        ScoredRow(tokens_L=tokens[: slot + 1], slots_N=torch.tensor([slot]), targets_N=target)
        for slot, target in ((2, torch.tensor([8])), (0, torch.tensor([6])))
    )
    (several,), _ = scored(trainer, [row])
    apart, _ = scored(trainer, [last, first])

    assert several.shape == (3,)
    assert torch.allclose(several[:2], torch.cat(apart), atol=1e-5)
