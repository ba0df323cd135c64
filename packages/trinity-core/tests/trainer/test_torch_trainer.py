from __future__ import annotations

import math
from typing import ClassVar

import pytest
import torch
from trinity.algorithm import (
    ADVANTAGE_FN,
    ALGORITHM_TYPE,
    POLICY_LOSS_FN,
    AdvantageFn,
    AlgorithmType,
    ExperienceModel,
    PolicyLossFn,
)
from trinity.algorithm.ops import masked_mean
from trinity.common.batch import ExperienceBatch
from trinity.errors import CheckpointError, ModelError, TrinityError


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


def test_a_checkpoint_goes_on_as_if_nothing_had_happened(a_trainer, ragged, tmp_path):
    trainer, resumed = a_trainer(), a_trainer()
    trainer.train_step(ragged(), step=1)
    trainer.save(tmp_path)
    resumed.load(tmp_path)

    assert resumed.version == trainer.version == 1
    assert numbers(resumed.train_step(ragged(), step=2)) == numbers(
        trainer.train_step(ragged(), step=2)
    )
    assert all(torch.equal(w, weights(resumed)[name]) for name, w in weights(trainer).items())


def test_a_checkpoint_loads_into_the_same_tensors(a_trainer, ragged, tmp_path):
    trainer = a_trainer()
    trainer.save(tmp_path)
    shared = trainer.snapshot(copy=False).tensors
    trainer.train_step(ragged(), step=1)

    trainer.load(tmp_path)

    assert all(torch.equal(w, shared[name]) for name, w in weights(trainer).items())


def test_a_damaged_checkpoint_is_named(a_trainer, tmp_path):
    trainer = a_trainer()
    trainer.save(tmp_path)
    (tmp_path / "trainer.pt").write_bytes(b"half a fi")

    with pytest.raises(CheckpointError, match=r"trainer\.pt' cannot be read"):
        trainer.load(tmp_path)


def test_the_saved_model_loads_as_any_other(a_trainer, ragged, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trainer = a_trainer()
    trainer.train_step(ragged(), step=1)
    trainer.save_hf(tmp_path)

    loaded = dict(AutoModelForCausalLM.from_pretrained(tmp_path).named_parameters())
    assert all(torch.equal(w, loaded[name]) for name, w in weights(trainer).items())
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template


def test_a_snapshot_names_tied_weights_once(a_trainer):
    tensors = a_trainer().snapshot(copy=False).tensors

    assert "model.embed_tokens.weight" in tensors
    assert "lm_head.weight" not in tensors


def test_a_copied_snapshot_stays_as_it_is(a_trainer, ragged):
    trainer = a_trainer()
    kept, live = trainer.snapshot(copy=True), trainer.snapshot(copy=False)

    trainer.train_step(ragged(), step=1)

    name = "model.embed_tokens.weight"
    assert (kept.version, trainer.snapshot(copy=False).version) == (0, 1)
    assert not torch.equal(kept.tensors[name], live.tensors[name])
    assert torch.equal(live.tensors[name], trainer.model.model.embed_tokens.weight)


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


def test_a_batch_that_the_advantage_function_empties_changes_nothing(a_trainer, an_experience):
    rows = [an_experience(n, run=n) for n in range(2)]  # equal rewards
    trainer = a_trainer(advantage_fn_args={"std_threshold": 0.0})

    metrics = trainer.train_step(rows, step=1)

    assert metrics["actor/skipped_batch"] == 1.0
    assert metrics["advantage/filtered_count"] == 2.0
    assert trainer.version == 0


def test_advantages_that_the_rows_bring_are_kept(a_trainer, an_experience):
    rows = [an_experience(n, run=n, advantages=[float(n)] * 5) for n in range(2)]

    metrics = a_trainer().train_step(rows, step=1)

    # r = 1, so the loss is minus the mean advantage
    assert metrics["actor/pg_loss"] == pytest.approx(-0.5)


@ADVANTAGE_FN.register_module("counting")
class Counting(AdvantageFn):
    calls = 0

    def __call__(self, exps, **kwargs):
        type(self).calls += 1
        assert isinstance(exps, ExperienceBatch)
        exps.batch["advantages"] = (
            exps.batch["token_level_rewards"]
            .sum(-1, keepdim=True)
            .expand(exps.batch["response_mask"].shape)
        )
        return exps, {"seen": float(len(exps))}


def test_a_function_that_declares_nothing_gets_the_batch_in_the_trainer(a_trainer, an_experience):
    Counting.calls = 0

    metrics = a_trainer(advantage_fn="counting").train_step([an_experience()], step=1)

    assert Counting.calls == 1
    assert metrics["advantage/seen"] == 1.0


def test_an_algorithm_without_advantages_calls_no_advantage_function(a_trainer, an_experience):
    Counting.calls = 0

    a_trainer(**(SFT | {"advantage_fn": "counting"})).train_step([an_experience()], step=1)

    assert Counting.calls == 0


def test_a_reference_is_loaded_only_where_a_kl_term_reads_it(a_trainer, ragged):
    without, with_kl = a_trainer(), a_trainer(kl_loss_fn="k2")

    for trainer in (without, with_kl):
        trainer.train_step(ragged(), step=1)

    assert without._reference is None
    assert with_kl._reference is not None
    assert with_kl.train_step(ragged(), step=2)["actor/kl_loss"] > 0.0


def test_a_kl_coefficient_of_0_loads_no_reference(a_trainer, ragged):
    trainer = a_trainer(kl_loss_fn="k2", kl_loss_fn_args={"kl_coef": 0.0})
    trainer.train_step(ragged(), step=1)

    assert trainer._reference is None


@ALGORITHM_TYPE.register_module("without_reference")
class WithoutReference(AlgorithmType):
    @classmethod
    def default_config(cls):
        return {"use_reference": False}


def test_an_algorithm_without_a_reference_loads_none_and_says_what_is_left_out(
    a_trainer, ragged, caplog
):
    trainer = a_trainer(algorithm_type="without_reference", kl_loss_fn="k2")
    trainer.train_step(ragged(), step=1)

    assert trainer._reference is None
    assert "kl_fn 'k2' is left out" in caplog.text


def test_a_penalty_lowers_the_rewards_that_advantages_are_made_of(a_trainer, ragged):
    trainer = a_trainer(
        advantage_fn="counting", kl_penalty_fn="k2", kl_penalty_fn_args={"kl_coef": 0.1}
    )

    metrics = trainer.train_step(ragged(), step=1)

    assert metrics["actor/kl_penalty/kl"] > 0.0
    assert metrics["actor/kl_penalty/kl_coef"] == 0.1


@ADVANTAGE_FN.register_module("tutorial")
class TutorialAdvantageFn(AdvantageFn):
    def __init__(self, baseline: str = "mean", tau: float = 1.0) -> None:
        self.baseline = baseline
        self.tau = tau

    def __call__(self, exps, **kwargs):
        scores = exps.batch["token_level_rewards"].sum(-1, keepdim=True)
        exps.batch["advantages"] = (scores - scores.mean()) * exps.batch["response_mask"]
        exps.batch["returns"] = exps.batch["advantages"]
        return exps, {"baseline": scores.mean().item()}

    @classmethod
    def default_args(cls):
        return {"baseline": "mean", "tau": 1.0}


@POLICY_LOSS_FN.register_module("tutorial")
class TutorialLossFn(PolicyLossFn):
    seen: ClassVar[list[float]] = []

    def __init__(self, tau: float = 1.0) -> None:
        self.tau = tau

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        self.seen.extend(advantages[:, 0].tolist())
        loss = masked_mean(-advantages * logprob, action_mask) / (1.0 + self.tau)
        return loss, {"tutorial_loss": loss.detach().item()}


@ALGORITHM_TYPE.register_module("tutorial")
class TutorialAlgorithm(AlgorithmType):
    use_critic: bool = False
    use_reference: bool = True
    use_advantage: bool = True
    can_balance_batch: bool = False
    schema: type = ExperienceModel


def test_classes_written_to_the_tutorial_train(a_trainer, ragged):
    trainer = a_trainer(
        algorithm_type="tutorial",
        advantage_fn="tutorial",
        policy_loss_fn="tutorial",
        policy_loss_fn_args={"tau": 0.5},
        kl_loss_fn="k2",
    )

    metrics = [trainer.train_step(ragged(), step=step) for step in (1, 2)]

    assert metrics[1]["actor/tutorial_loss"] < metrics[0]["actor/tutorial_loss"]
    assert metrics[0]["advantage/baseline"] == pytest.approx((4 * 1.0 + 0.25) / 8)


def test_rows_that_may_not_be_balanced_reach_the_loss_in_order(a_trainer, an_experience):
    TutorialLossFn.seen.clear()
    rows = [
        an_experience(n, response=3 + n % 2, run=n, advantages=[float(n)] * (3 + n % 2))
        for n in range(5)
    ]
    trainer = a_trainer(
        algorithm_type="tutorial", policy_loss_fn="tutorial", trainer={"max_token_len_per_gpu": 16}
    )

    trainer.train_step(rows, step=1)

    assert TutorialLossFn.seen == [0.0, 1.0, 2.0, 3.0, 4.0]


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
