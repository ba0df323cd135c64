from __future__ import annotations

import math

import pytest
import torch
from trinity.common.batch import ExperienceBatch
from trinity.errors import ModelError, TrinityError


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.snapshot(copy=True).tensors.items()}


def numbers(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


SFT = {"algorithm_type": "sft", "advantage_fn": None, "policy_loss_fn": "sft"}


def test_a_few_steps_of_sft_lower_the_loss(a_trainer, an_experience):
    rows = [an_experience(seed, reward=None) for seed in range(4)]
    trainer = a_trainer(lr=1e-2, **SFT)

    losses = [trainer.train_step(rows, step=step)["actor/sft_loss"] for step in range(1, 9)]

    assert losses[-1] < 0.5 * losses[0]
    assert trainer.version == 8


def test_grpo_makes_the_rewarded_response_likelier(a_trainer, an_experience):
    good, bad = an_experience(0, reward=1.0), an_experience(1, reward=0.0, run=1)
    trainer = a_trainer(lr=1e-3)

    def loglikelihood(row):
        batch = ExperienceBatch.from_experiences([row])
        return trainer._scored(trainer._policy, batch).sum().item()

    before = loglikelihood(good) - loglikelihood(bad)
    for step in range(1, 4):
        trainer.train_step([good, bad], step=step)

    assert loglikelihood(good) - loglikelihood(bad) > before + 1.0


def test_a_step_reports_loss_gradient_rate_lengths_and_times(a_trainer, ragged):
    metrics = a_trainer(kl_loss_fn="k2", entropy_loss_fn="default").train_step(ragged(), step=1)

    expected = {
        "actor/loss",
        "actor/pg_loss",
        "actor/pg_clipfrac",
        "actor/ppo_kl",
        "actor/kl_loss",
        "actor/kl_coef",
        "actor/entropy_loss",
        "actor/grad_norm",
        "actor/lr",
        "actor/rollout_logprob_diff",
        "response_length/mean",
        "prompt_length/max",
        "perf/total_num_tokens",
        "time/advantage_s",
        "time/reference_s",
        "time/forward_backward_s",
        "time/optimizer_s",
    }
    assert expected <= metrics.keys()
    assert metrics["response_length/mean"] == (3 + 9 + 5 + 7 + 4 + 8 + 6 + 2) / 8
    assert metrics["actor/lr"] == 1e-3
    assert metrics["actor/kl_loss"] == 0.0  # the reference is what the policy still is


def test_rollout_logprobs_of_the_policy_itself_differ_from_its_own_by_nothing(a_trainer, ragged):
    trainer = a_trainer()
    rows = ragged()
    own = trainer._scored(trainer._policy, ExperienceBatch.from_experiences(rows))
    for row, exp in enumerate(rows):
        exp.logprobs = own[row, : exp.response_length]

    metrics = trainer.train_step(rows, step=1)

    assert metrics["actor/rollout_logprob_diff"] < 1e-5
    assert metrics["actor/ppo_kl"] == pytest.approx(0.0, abs=1e-5)
    assert metrics["actor/pg_clipfrac"] == 0.0


@pytest.mark.parametrize(
    ("bypass", "version", "is_reused"), [(True, 7, True), (False, 0, True), (False, 7, False)]
)
def test_the_rollouts_logprobs_are_the_old_ones_if_allowed_or_on_policy(
    a_trainer, ragged, bypass, version, is_reused
):
    rows = ragged(info={"model_version": version})

    metrics = a_trainer(bypass_old_logprobs=bypass).train_step(rows, step=1)

    # rows claim -5 a token, which the model does not; its own ones differ from itself by nothing
    assert (abs(metrics["actor/ppo_kl"]) > 0.1) == is_reused
    assert metrics["actor/rollout_logprob_diff"] > 0.1


def test_rows_without_logprobs_are_taken_as_on_policy(a_trainer, an_experience):
    rows = [an_experience(0, reward=1.0), an_experience(1, reward=0.0, run=1)]

    metrics = a_trainer().train_step(rows, step=1)

    assert metrics["actor/ppo_kl"] == 0.0
    assert "actor/rollout_logprob_diff" not in metrics


@pytest.mark.parametrize("budget", [30, 60])
def test_the_budget_of_tokens_does_not_change_the_step(a_trainer, ragged, budget):
    whole, cut = a_trainer(), a_trainer(trainer={"max_token_len_per_gpu": budget})

    expected, metrics = whole.train_step(ragged(), step=1), cut.train_step(ragged(), step=1)

    assert metrics["perf/num_micro_batches"] > expected["perf/num_micro_batches"] == 1
    assert metrics["actor/grad_norm"] == pytest.approx(expected["actor/grad_norm"], rel=5e-6)
    assert metrics["actor/loss"] == pytest.approx(expected["actor/loss"], rel=1e-5)


def test_two_trainers_of_one_seed_make_equal_steps(a_trainer, ragged):
    first, second = a_trainer(), a_trainer()

    for step in (1, 2):
        assert numbers(first.train_step(ragged(), step=step)) == numbers(
            second.train_step(ragged(), step=step)
        )
    assert all(torch.equal(w, weights(second)[name]) for name, w in weights(first).items())


def test_tokens_under_the_mask_teach_nothing(a_trainer, an_experience):
    mask = [True, True, False, True, True]

    def step(logprob):
        rows = [
            an_experience(n, reward=float(n), run=n, action_mask=mask, logprobs=[-5.0] * 5)
            for n in range(2)
        ]
        for row in rows:
            row.logprobs[2] = logprob
        trainer = a_trainer()
        return numbers(trainer.train_step(rows, step=1))

    assert step(1e30) == step(0.0)


def test_a_loss_that_is_no_number_stops_before_the_weights_change(a_trainer, ragged, golden):
    trainer = a_trainer()
    before = weights(trainer)
    rows = ragged()
    rows[2].logprobs[0] = math.nan

    with pytest.raises(TrinityError) as caught:
        trainer.train_step(rows, step=5)

    golden(str(caught.value), "trainer_loss_not_finite")
    assert all(torch.equal(w, weights(trainer)[name]) for name, w in before.items())
    assert trainer.version == 0
    assert numbers(trainer.train_step(ragged(), step=5)) == numbers(
        a_trainer().train_step(ragged(), step=5)
    )


def test_a_batch_that_the_advantage_function_empties_changes_nothing(a_trainer, an_experience):
    rows = [an_experience(n, run=n) for n in range(2)]  # equal rewards
    trainer = a_trainer(advantage_fn_args={"std_threshold": 0.0})

    metrics = trainer.train_step(rows, step=1)

    assert metrics["actor/skipped_batch"] == 1.0
    assert metrics["advantage/filtered_count"] == 2.0
    assert trainer.version == 0


def test_a_batch_without_a_token_to_train_on_changes_nothing(a_trainer, an_experience) -> None:
    rows = [an_experience(n, run=n, reward=float(n)) for n in range(2)]
    for row in rows:
        row.action_mask = torch.zeros(row.response_length, dtype=torch.bool)
    trainer = a_trainer()
    before = weights(trainer)

    metrics = trainer.train_step(rows, step=1)

    assert metrics["actor/skipped_batch"] == 1.0
    assert all(torch.equal(w, weights(trainer)[name]) for name, w in before.items())
    assert trainer.version == 0


def test_advantages_that_the_rows_bring_are_kept(a_trainer, an_experience):
    rows = [an_experience(n, run=n, advantages=[float(n)] * 5) for n in range(2)]

    metrics = a_trainer().train_step(rows, step=1)

    # r = 1, so the loss is minus the mean advantage
    assert metrics["actor/pg_loss"] == pytest.approx(-0.5)


def test_an_entropy_bonus_makes_the_policy_less_decided(a_trainer, ragged):
    trainer = a_trainer(
        lr=1e-2, entropy_loss_fn="default", entropy_loss_fn_args={"entropy_coef": 10.0}
    )

    values = [trainer.train_step(ragged(), step=s)["actor/entropy_loss"] for s in range(1, 5)]

    assert values[-1] > values[0]


def test_gradient_checkpointing_gives_the_same_step(a_trainer, ragged):
    plain, frugal = a_trainer(), a_trainer(trainer={"gradient_checkpointing": True})

    expected, metrics = plain.train_step(ragged(), step=1), frugal.train_step(ragged(), step=1)

    assert metrics["actor/grad_norm"] == pytest.approx(expected["actor/grad_norm"], rel=1e-5)


def test_bfloat16_computes_nearly_the_same_on_float32_weights(a_trainer, ragged):
    exact, rough = a_trainer(), a_trainer(trainer={"precision": "bfloat16"})

    expected, metrics = exact.train_step(ragged(), step=1), rough.train_step(ragged(), step=1)

    assert rough.model.dtype == torch.float32
    assert metrics["actor/loss"] == pytest.approx(expected["actor/loss"], abs=0.1)


def test_a_folder_without_a_model_is_named(a_trainer, tmp_path):
    with pytest.raises(ModelError, match=r"cannot load model .* model\.model_path must be"):
        a_trainer(model_path=tmp_path)
