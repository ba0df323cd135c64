"""Rows of a batch: pairs of answers, and tokens that the model does not have."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from trinity.common.batch import ExperienceBatch
from trinity.common.experience import Experience
from trinity.common.value_checks import TokenLimits
from trinity.errors import DataError
from trinity.trainer.microbatch import plan_packs
from trinity.trainer.prefix_tree import rows_of
from trinity.trainer.preparation import as_rows, check_rows
from trinity_testing import builders

DPO = {
    "algorithm_type": "dpo",
    "advantage_fn": None,
    "policy_loss_fn": "dpo",
    "kl_loss_fn": "none",
}


def a_pair(seed=0, *, prompt=4, chosen=3, rejected=5):
    generator = torch.Generator().manual_seed(seed)

    def tokens(count):
        return torch.randint(3, 384, (count,), generator=generator)

    return Experience(
        tokens=tokens(prompt),
        prompt_length=prompt,
        chosen=tokens(chosen),
        rejected=tokens(rejected),
    )


def pairs():
    sizes = [(3, 5), (9, 2), (4, 4), (1, 7), (6, 6), (2, 3)]
    return [
        a_pair(seed, prompt=2 + seed, chosen=chosen, rejected=rejected)
        for seed, (chosen, rejected) in enumerate(sizes)
    ]


def test_a_pair_is_two_rows_the_chosen_first() -> None:
    pair = a_pair()

    chosen, rejected = as_rows([pair], wants_pairs=True)

    assert chosen.tokens.tolist() == [*pair.tokens.tolist(), *pair.chosen.tolist()]
    assert rejected.tokens.tolist() == [*pair.tokens.tolist(), *pair.rejected.tolist()]
    assert (chosen.prompt_length, chosen.response_length, rejected.response_length) == (4, 3, 5)
    assert (chosen.eid.suffix, rejected.eid.suffix) == ("chosen", "rejected")


def test_pairs_and_single_answers_do_not_mix(an_experience) -> None:
    with pytest.raises(DataError, match="the loss wants pairs, and some of the rows are single"):
        as_rows([a_pair(), an_experience()], wants_pairs=True)
    with pytest.raises(DataError, match="the loss wants single answers, and some of the rows are"):
        as_rows([a_pair()], wants_pairs=False)


@pytest.mark.parametrize("keep_order", [True, False])
def test_a_pair_stays_in_one_micro_batch(keep_order) -> None:
    lengths = [5, 9, 2, 2, 30, 1, 7, 7, 8, 8]

    plan = plan_packs(
        [np.arange(length) + 100 * row for row, length in enumerate(lengths)],
        max_tokens=20,
        max_padding=6,
        keep_order=keep_order,
        together=2,
    )

    assert sorted(row for packs in plan for row in rows_of(packs)) == list(range(10))
    for rows in map(rows_of, plan):
        assert all(b == a + 1 and a % 2 == 0 for a, b in zip(rows[::2], rows[1::2], strict=True))


def test_the_first_step_starts_at_the_reference(a_trainer) -> None:
    metrics = a_trainer(**DPO).train_step(pairs(), step=1)

    assert metrics["actor/dpo_loss"] == pytest.approx(math.log(2), rel=1e-6)
    assert metrics["actor/chosen_reward"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["perf/num_samples"] == 12


def test_it_comes_to_prefer_the_chosen_answers(a_trainer) -> None:
    trainer = a_trainer(lr=1e-2, **DPO)

    steps = [trainer.train_step(pairs(), step=step) for step in range(1, 9)]

    assert steps[-1]["actor/accuracy_mean"] == pytest.approx(1.0)
    assert steps[-1]["actor/dpo_loss"] < 0.5 * steps[0]["actor/dpo_loss"]


def gradient(trainer, rows):
    batch = ExperienceBatch.from_experiences(as_rows(rows, wants_pairs=True))
    generator = torch.Generator().manual_seed(0)
    shape = batch["action_mask"].shape
    batch["ref_logprob"] = -5.5 + torch.randn(shape, generator=generator)
    trainer._accumulate(batch, trainer._scorer.plan(batch), step=1)
    return torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])


@pytest.mark.parametrize("max_tokens", [16, 40, 80])
def test_the_gradient_is_that_of_the_batch_however_it_is_cut(a_trainer, max_tokens) -> None:
    whole = gradient(a_trainer(trainer={"max_token_len_per_gpu": 100_000}, **DPO), pairs())

    cut = gradient(a_trainer(trainer={"max_token_len_per_gpu": max_tokens}, **DPO), pairs())

    assert whole.norm() > 0.1
    assert (cut - whole).norm() <= 5e-6 * whole.norm()


@pytest.mark.parametrize(
    ("response", "words"),
    [
        ([3, 64], "holds the token 64, and the model knows tokens 0 to 63. Return"),
        ([3, -100], "holds the token -100, and the model knows tokens 0 to 63. Return"),
        ([3] * 31, "has 33 tokens, more than model.max_model_len 32. Raise it, or"),
    ],
)
def test_a_stored_row_that_cannot_be_trained_is_named(response, words):
    info = {"workflow": "my_workflows:Wf", "row": "tasks.jsonl, row 7"}
    rows = [builders.an_experience(), builders.an_experience(response=response, run=1, info=info)]

    with pytest.raises(DataError) as caught:
        check_rows(rows, limits=TokenLimits(max_len=32, vocab=64))

    named = "experience 0/0/1/0, workflow my_workflows:Wf, row tasks.jsonl, row 7: "
    assert str(caught.value).startswith(named + words)


def test_the_longest_row_and_the_first_and_the_last_token_are_known():
    row = builders.an_experience(response=[0, 63])
    check_rows([row], limits=TokenLimits(max_len=len(row.tokens), vocab=64))


def test_a_training_step_refuses_them(a_trainer, an_experience):
    row = an_experience(0, reward=1.0)
    row.tokens[-1] = 10**6
    trainer = a_trainer()

    with pytest.raises(DataError, match="holds the token 1000000"):
        trainer.train_step([row], step=1)


def test_a_row_of_3000_tokens_was_trained_with_a_limit_of_32(a_trainer, an_experience):
    trainer = a_trainer(max_model_len=32)

    with pytest.raises(DataError, match=r"3,00\d tokens, more than model\.max_model_len 32"):
        trainer.train_step([an_experience(0, reward=1.0, response=3000)], step=1)
