from __future__ import annotations

import math
from typing import ClassVar

import pytest
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

SFT = {"algorithm_type": "sft", "advantage_fn": None, "policy_loss_fn": "sft"}


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

    assert without._scorer.reference is None
    assert with_kl._scorer.reference is not None
    assert with_kl.train_step(ragged(), step=2)["actor/kl_loss"] > 0.0


def test_a_kl_coefficient_of_0_loads_no_reference(a_trainer, ragged):
    trainer = a_trainer(kl_loss_fn="k2", kl_loss_fn_args={"kl_coef": 0.0})
    trainer.train_step(ragged(), step=1)

    assert trainer._scorer.reference is None


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

    assert trainer._scorer.reference is None
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


def test_an_adaptive_coefficient_moves_and_goes_on_from_a_checkpoint(a_trainer, ragged, tmp_path):
    adaptive = {"kl_coef": 0.1, "adaptive": True, "target_kl": 1e-6, "horizon": 80}
    settings = {
        "advantage_fn": "reinforceplusplus",
        "kl_penalty_fn": "k2",
        "kl_penalty_fn_args": adaptive,
    }
    trainer = a_trainer(**settings)
    trainer.train_step(ragged(), step=1)
    trainer.save(tmp_path)
    resumed = a_trainer(**settings)
    resumed.load(tmp_path)

    coefficients = [
        t.train_step(ragged(), step=2)["actor/kl_penalty/kl_coef"] for t in (trainer, resumed)
    ]

    # far above the target: it grows by 20 % of 8 rows by 80
    assert coefficients == [pytest.approx(0.1 * 1.02)] * 2


def test_an_advantage_that_looks_at_entropies_gets_them(a_trainer, ragged):
    metrics = a_trainer(advantage_fn="clipb").train_step(ragged(), step=1)

    assert math.isfinite(metrics["actor/loss"])
    assert any("frac_clipped" in name for name in metrics)
