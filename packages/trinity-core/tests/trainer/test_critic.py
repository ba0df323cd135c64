"""The critic: its values, its step, its warm-up, its place in a checkpoint."""

from __future__ import annotations

import pytest
import torch
from trinity.common.batch import ExperienceBatch
from trinity.errors import CheckpointError, DataError, TrinityError
from trinity_testing.tiny import make_tiny_model

PPO = {"algorithm_type": "ppo", "advantage_fn": "ppo"}
FAST = {"critic": {"optimizer": {"lr": 1e-2, "weight_decay": 0.0}}}


def critic_weights(trainer):
    return {
        name: value.detach().clone() for name, value in trainer._critic.module.named_parameters()
    }


def policy_weights(trainer):
    return trainer.snapshot(copy=True).tensors


def same(first, second):
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def test_a_critic_that_knows_nothing_says_nothing(a_trainer, ragged) -> None:
    metrics = a_trainer(**PPO).train_step(ragged(), step=1)

    # Values are 0 and nothing is discounted: each token's return is its row's reward. Of the 8 rows
    # of 2 to 9 tokens less the hole of every third, 4 have reward 1 and one of the others 0.25.
    mask = torch.tensor([2, 9, 5, 6, 4, 8, 5, 2])
    rewards = torch.tensor([0, 1, 0, 1.25, 0, 1, 0, 1])
    assert metrics["critic/values/mean"] == 0.0
    assert metrics["critic/returns/mean"] == pytest.approx(
        ((mask * rewards).sum() / mask.sum()).item(), rel=1e-6
    )
    expected = 0.5 * (mask * rewards**2).sum() / mask.sum()
    assert metrics["critic/vf_loss"] == pytest.approx(expected.item(), rel=1e-6)
    assert metrics["critic/vf_explained_var"] == pytest.approx(0.0)


def test_it_learns_what_responses_are_worth(a_trainer, ragged) -> None:
    trainer = a_trainer(lr=0.0, trainer=FAST, **PPO)

    steps = [trainer.train_step(ragged(), step=step) for step in range(1, 25)]

    assert steps[-1]["critic/vf_loss"] < 0.1 * steps[0]["critic/vf_loss"]
    assert steps[-1]["critic/vf_explained_var"] > 0.8


@pytest.mark.parametrize("max_tokens", [16, 40, 10_000])
def test_the_gradient_is_that_of_the_batch_however_it_is_cut(a_trainer, ragged, max_tokens) -> None:
    def gradient(budget):
        trainer = a_trainer(trainer=FAST | {"max_token_len_per_gpu": budget}, **PPO)
        with torch.no_grad():
            trainer._critic._head.weight.fill_(0.1)
        batch = ExperienceBatch.from_experiences(ragged())
        generator = torch.Generator().manual_seed(0)
        batch["values"] = torch.randn(batch["action_mask"].shape, generator=generator)
        batch["returns"] = torch.randn(batch["action_mask"].shape, generator=generator)
        trainer._critic._accumulate(batch, step=1)
        parameters = trainer._critic.module.parameters()
        return torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])

    whole, cut = gradient(100_000), gradient(max_tokens)

    assert whole.norm() > 0.1
    assert (cut - whole).norm() <= 5e-6 * whole.norm()


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_its_metrics_do_not_depend_on_how_the_batch_is_cut(a_trainer, ragged, mode) -> None:
    batch = ExperienceBatch.from_experiences(ragged())
    shape = batch["action_mask"].shape
    batch["values"], batch["returns"] = torch.zeros(shape), torch.ones(shape)
    batch["values"][1] = 0.45  # 9 tokens, where the head's 0.45 is no step too far

    def metrics(budget):
        critic = {"loss_agg_mode": mode, "cliprange_value": 0.1}
        settings = {"max_token_len_per_gpu": budget, "critic": critic}
        trainer = a_trainer(trainer=settings, **PPO)
        with torch.no_grad():
            trainer._critic._head.bias.fill_(0.45)
        return trainer._critic._accumulate(batch, step=1)

    whole, cut = metrics(100_000), metrics(16)

    assert whole["vf_clipfrac"] == pytest.approx(1 - 9 / 41)  # a share of tokens, not of rows
    assert cut == pytest.approx(whole, rel=1e-5)


def test_in_the_warm_up_the_critic_alone_learns(a_trainer, ragged) -> None:
    trainer = a_trainer(trainer=FAST | {"critic_warmup": 2}, **PPO)
    policy, critic = policy_weights(trainer), critic_weights(trainer)

    first = trainer.train_step(ragged(), step=1)
    trainer.train_step(ragged(), step=2)

    assert same(policy_weights(trainer), policy)
    assert not same(critic_weights(trainer), critic)
    assert "actor/loss" not in first
    assert trainer.version == 2

    trainer.train_step(ragged(), step=3)
    assert not same(policy_weights(trainer), policy)


def test_a_run_goes_on_from_a_checkpoint_as_if_nothing_had_happened(
    a_trainer, ragged, tmp_path
) -> None:
    whole = a_trainer(trainer=FAST, **PPO)
    whole.train_step(ragged(), step=1)
    whole.save(tmp_path)
    resumed = a_trainer(trainer=FAST, **PPO)
    resumed.load(tmp_path)

    expected = whole.train_step(ragged(), step=2)
    got = resumed.train_step(ragged(), step=2)

    assert same(critic_weights(resumed), critic_weights(whole))
    assert same(policy_weights(resumed), policy_weights(whole))
    names = [name for name in expected if name.startswith(("critic/", "actor/"))]
    assert {name: got[name] for name in names} == {name: expected[name] for name in names}


def test_a_checkpoint_without_a_critic_is_refused(a_trainer, ragged, tmp_path) -> None:
    a_trainer().save(tmp_path)

    with pytest.raises(CheckpointError, match="critic"):
        a_trainer(**PPO).load(tmp_path)


def test_only_an_algorithm_that_needs_values_has_one(a_trainer) -> None:
    assert a_trainer()._critic is None
    assert a_trainer(**PPO)._critic is not None
    assert a_trainer(advantage_fn="ppo")._critic is not None


def test_it_starts_from_a_model_of_its_own(a_trainer, tmp_path) -> None:
    path = make_tiny_model(tmp_path / "wide", vocab=384, hidden=64)
    trainer = a_trainer(**PPO)
    trainer._config.model.critic_model_path = str(path)

    critic = trainer._make_critic(10)

    assert critic._head.in_features == 64


def test_without_returns_there_is_nothing_to_learn(a_trainer, ragged) -> None:
    critic = a_trainer(**PPO)._critic

    with pytest.raises(DataError, match=r"returns.*advantage_fn: ppo"):
        critic.train_step(ExperienceBatch.from_experiences(ragged()), step=1)


def test_a_reward_that_is_no_number_stops_the_step_before_any_weight_moves(
    a_trainer, ragged
) -> None:
    trainer = a_trainer(trainer=FAST, **PPO)
    before = critic_weights(trainer)
    rows = ragged()
    rows[0].reward = float("nan")

    with pytest.raises(TrinityError, match="1 experiences have a reward that is NaN"):
        trainer.train_step(rows, step=1)

    assert same(critic_weights(trainer), before)


def test_a_batch_with_an_experts_rows_has_advantages_and_values_for_all(
    a_trainer, an_experience
) -> None:
    rows = [an_experience(seed, run=seed, reward=float(seed % 2)) for seed in range(4)]
    for row in rows[:2]:
        row.info |= {"is_expert": False, "step": 1}
    for row in rows[2:]:
        row.info |= {"is_expert": True, "step": 1}
        row.advantages = row.returns = torch.zeros(row.response_length)
    for row in rows:
        row.logprobs = torch.full((row.response_length,), -5.0)
    trainer = a_trainer(algorithm_type="mix", policy_loss_fn="mix", advantage_fn="ppo")

    metrics = trainer.train_step(rows, step=1)

    assert metrics["critic/returns/mean"] == 0.5  # each row has 5 tokens, half the rows reward 1
    assert metrics["actor/expert/sft_loss"] > 0


def test_the_critic_of_a_model_with_buffers_goes_on_from_a_checkpoint(
    a_trainer, with_buffers, ragged, tmp_path
) -> None:
    trainer = a_trainer(model_path=with_buffers, trainer=FAST, **PPO)
    trainer.train_step(ragged(), step=1)
    trainer.save(tmp_path)

    resumed = a_trainer(model_path=with_buffers, trainer=FAST, **PPO)
    resumed.load(tmp_path)

    assert same(critic_weights(resumed), critic_weights(trainer))
