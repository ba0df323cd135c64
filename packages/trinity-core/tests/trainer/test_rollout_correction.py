"""The correction for a rollout engine that disagrees with the trainer, in the trainer."""

from __future__ import annotations

import pytest
import torch
from trinity.common.batch import ExperienceBatch
from trinity.common.config.algorithm import AlgorithmConfig
from trinity.errors import ConfigError, DataError

LOSS = {"policy_loss_fn": "sft", "advantage_fn": "grpo"}  # its gradient knows no ratio


def gradient(trainer, rows):
    batch, metrics = trainer._preparation.batch_of(rows, no_watch, version=0)
    trainer._accumulate(batch, trainer._scorer.plan(batch), step=1)
    flat = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    return flat, metrics


class _Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def no_watch(name):
    return _Nothing()


@pytest.fixture
def sampled(a_trainer, an_experience):
    """Return two rows with the log-probabilities of an engine that is off by some nats."""

    def build(*offsets):
        rows = [an_experience(seed, response=4, run=seed) for seed in range(len(offsets))]
        own_BR = a_trainer()._scorer.logprobs(ExperienceBatch.from_experiences(rows))
        for row, own_R, offset in zip(rows, own_BR, offsets, strict=True):
            row.logprobs = own_R - offset
        return rows

    return build


def test_an_engine_that_agrees_changes_nothing(a_trainer, sampled) -> None:
    rows = sampled(0.0, 0.0)

    plain, _ = gradient(a_trainer(**LOSS), rows)
    weighted, metrics = gradient(a_trainer(rollout_correction="tis", **LOSS), rows)

    assert torch.allclose(weighted, plain, rtol=1e-5, atol=1e-8)
    assert metrics["actor/rollout_correction/weight_mean"] == pytest.approx(1.0, rel=1e-5)


def test_each_tokens_gradient_is_weighed_by_trainer_over_engine_and_cut_at_two(
    a_trainer, sampled
) -> None:
    # ratios e^-0.7 = 0.4966 and e^3 = 20.1, cut at 2; both rows have 4 tokens of the 8
    alone = [gradient(a_trainer(**LOSS), [row])[0] for row in sampled(0.0, 0.0)]

    weighted, metrics = gradient(a_trainer(rollout_correction="tis", **LOSS), sampled(-0.7, 3.0))

    expected = 0.5 * (0.4965853 * alone[0] + 2.0 * alone[1])
    assert (weighted - expected).norm() <= 1e-5 * expected.norm()
    assert metrics["actor/rollout_correction/truncated_frac"] == pytest.approx(0.5)
    assert metrics["actor/rollout_correction/weight_mean"] == pytest.approx(1.24829, rel=1e-4)


def test_rejected_rows_have_no_gradient_and_do_not_count(a_trainer, sampled) -> None:
    alone, _ = gradient(a_trainer(**LOSS), sampled(0.0)[:1])

    left, metrics = gradient(a_trainer(rollout_correction="rejection", **LOSS), sampled(0.0, 3.0))

    assert (left - alone).norm() <= 1e-5 * alone.norm()
    assert metrics["actor/rollout_correction/rejected_frac"] == 0.5


def test_the_reward_of_a_rejected_row_still_counts_in_its_group(a_trainer, sampled) -> None:
    rows = sampled(0.0, 0.0, 0.0, 9.0)  # the last is rejected; all four earned the same
    for row in rows:
        row.reward = 1.0
    trainer = a_trainer(
        rollout_correction="rejection", policy_loss_fn="ppo", advantage_fn="grpo_verl"
    )

    batch, _ = trainer._preparation.batch_of(rows, no_watch, version=0)

    assert batch["advantages"].abs().max() == 0.0
    assert batch["action_mask"].any(1).tolist() == [True, True, True, False]


def test_a_batch_of_rejected_rows_changes_nothing(a_trainer, sampled) -> None:
    trainer = a_trainer(rollout_correction="rejection", **LOSS)
    before = trainer.snapshot(copy=True).tensors

    metrics = trainer.train_step(sampled(3.0, -3.0), step=1)

    assert metrics["actor/skipped_batch"] == 1.0
    after = trainer.snapshot(copy=True).tensors
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("loss", ["ppo", "gspo", "cispo", "sapo", "topr", "rec"])
@pytest.mark.parametrize("word", ["tis", "rejection"])
def test_it_is_cut_into_micro_batches_without_error(a_trainer, ragged, loss, word) -> None:
    def of(budget):
        rows = ragged()
        own_BR = a_trainer()._scorer.logprobs(ExperienceBatch.from_experiences(rows))
        for number, row in enumerate(rows):
            row.logprobs = own_BR[number, : row.response_length] - 0.15 * number
        trainer = a_trainer(
            trainer={"max_token_len_per_gpu": budget},
            rollout_correction=word,
            policy_loss_fn=loss,
        )
        return gradient(trainer, rows)[0]

    whole, cut = of(100_000), of(24)

    assert whole.norm() > 0
    assert (cut - whole).norm() <= 5e-6 * whole.norm()


def test_rows_without_the_rollouts_logprobs_cannot_be_corrected(a_trainer, an_experience) -> None:
    with pytest.raises(DataError, match=r"rollout_correction.*have none"):
        a_trainer(rollout_correction="tis").train_step([an_experience()], step=1)


@pytest.mark.parametrize("setting", ["off", False, None])
def test_it_is_off(setting) -> None:
    assert AlgorithmConfig(rollout_correction=setting).rollout_correction is None


def test_the_published_section_is_taken() -> None:
    given = {"rollout_is": "sequence", "rollout_is_threshold": 5.0, "bypass_mode": False}

    section = AlgorithmConfig(rollout_correction=given).rollout_correction

    assert section.fields() == {
        "rollout_is": "sequence",
        "rollout_is_threshold": 5.0,
        "rollout_rs": None,
        "rollout_rs_threshold": None,
        "rollout_rs_threshold_lower": None,
    }


def test_a_misspelt_word_is_named() -> None:
    with pytest.raises(ValueError, match="Did you mean 'rejection'"):
        AlgorithmConfig(rollout_correction="rejektion")


def test_thresholds_that_keep_no_row_are_a_wrong_configuration(a_trainer) -> None:
    setting = {"rollout_rs": "sequence", "rollout_rs_threshold": 0.8}

    with pytest.raises(ConfigError, match=r"algorithm\.rollout_correction: .*which is none"):
        a_trainer(rollout_correction=setting)
