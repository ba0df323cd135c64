"""Gradients add up until a step is asked for, and runs do not touch each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from trinity.common.config.model import LoRAConfig
from trinity.errors import CheckpointError, ConfigError, DataError
from trinity.trainer.microbatch import ModelInputs
from trinity_tinker.gradients import GradientTrainer

pytest.importorskip("peft", reason="pip install 'trinity-core[lora]'")

LAYERS = r"model\.layers\.\d+\.self_attn\.(q_proj|v_proj)|lm_head"
RATE = 1e-2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from trinity_testing.tiny import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def a_part(num_tokens: int = 6, *, seed: int = 0) -> ModelInputs:
    """Return one row, each token of which is scored but the first."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 384, (num_tokens + 1,), generator=generator)
    places = torch.arange(num_tokens)
    return ModelInputs(
        tokens_PL=tokens[None, :-1],
        suffixes_GK=None,
        positions_PL=None,
        ends_PL=None,
        rows_N=torch.zeros_like(places),
        columns_N=places,
        slots_N=places,
        targets_N=tokens[1:],
        temperature_N=None,
        shape=(1, num_tokens),
    )


def negative_logprob(number: int, logprob_BR: torch.Tensor) -> torch.Tensor:
    del number
    return -logprob_BR.sum()


def begin(trainer: GradientTrainer, run: str, *, rank: int, seed: int = 1) -> None:
    config = LoRAConfig(lora_rank=rank, lora_alpha=32, target_modules=LAYERS)
    trainer.begin(run, config, seed=seed)


def weights_of(trainer: GradientTrainer, run: str, folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    trainer.save(run, folder)
    return load_file(folder / "adapter" / "adapter_model.safetensors")


def train(trainer: GradientTrainer, ranks: dict[str, int], *, steps: int = 3) -> None:
    """Let runs take turns: a pass each, another pass each, a step each."""
    for step in range(steps):
        for part in range(2):
            for run, rank in ranks.items():
                first = a_part(5 + step, seed=100 * rank + 10 * step + part)
                trainer.backward(run, [first, a_part(9, seed=rank)], negative_logprob)
        for run in ranks:
            trainer.step(run, lr=RATE)


@pytest.mark.acceptance
def test_runs_of_ranks_4_and_16_in_turns_equal_each_run_alone_bit_for_bit(model, tmp_path):
    ranks = {"a": 4, "b": 16}
    together = GradientTrainer(str(model))
    for run, rank in ranks.items():
        begin(together, run, rank=rank)
    train(together, ranks)

    for run, rank in ranks.items():
        alone = GradientTrainer(str(model))
        begin(alone, run, rank=rank)
        train(alone, {run: rank})
        expected = weights_of(alone, run, tmp_path / "alone" / run)
        found = weights_of(together, run, tmp_path / "together" / run)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_log_probabilities_are_those_of_the_model(model):
    from transformers import AutoModelForCausalLM

    trainer = GradientTrainer(str(model))
    begin(trainer, "a", rank=4)
    parts = [a_part(7, seed=1), a_part(3, seed=2)]

    found, loss = trainer.backward("a", parts, negative_logprob, forward_only=True)

    plain = AutoModelForCausalLM.from_pretrained(model).eval()
    for part, logprob_BR in zip(parts, found, strict=True):
        with torch.no_grad():
            logits_NV = plain(input_ids=part.tokens_PL).logits[0]
        expected_N = logits_NV.log_softmax(-1).gather(1, part.targets_N[:, None])[:, 0]
        assert torch.allclose(logprob_BR[0], expected_N, atol=1e-5)
    assert loss == pytest.approx(-sum(float(one.sum()) for one in found), rel=1e-6)


def test_two_passes_add_up_to_one_of_all_parts(model, tmp_path):
    parts = [a_part(4, seed=seed) for seed in range(6)]
    weights = []
    for passes in ([parts], [parts[:1], parts[1:]]):
        trainer = GradientTrainer(str(model))
        begin(trainer, "a", rank=4)
        for some in passes:
            trainer.backward("a", some, negative_logprob)
        trainer.step("a", lr=RATE)
        weights.append(weights_of(trainer, "a", tmp_path / str(len(passes))))

    assert all(torch.allclose(weights[0][name], weights[1][name], atol=1e-6) for name in weights[0])


def test_a_forward_pass_leaves_no_gradient(model):
    trainer = GradientTrainer(str(model))
    begin(trainer, "a", rank=4)
    trainer.backward("a", [a_part()], negative_logprob, forward_only=True)

    with pytest.raises(ConfigError, match="there are none since the last one"):
        trainer.step("a", lr=RATE)


def test_a_loss_that_is_no_number_is_told_and_adds_nothing(model, tmp_path):
    def broken(number: int, logprob_BR: torch.Tensor) -> torch.Tensor:
        del number
        return logprob_BR.sum() * float("nan")

    weights = []
    for has_broken in (False, True):
        trainer = GradientTrainer(str(model))
        begin(trainer, "a", rank=4)
        trainer.backward("a", [a_part()], negative_logprob)
        if has_broken:
            with pytest.raises(DataError, match="the loss is nan"):
                trainer.backward("a", [a_part(seed=3)], broken)
        trainer.step("a", lr=RATE)
        weights.append(weights_of(trainer, "a", tmp_path / str(has_broken)))

    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_pass_whose_gradients_have_an_infinite_norm_is_told_and_adds_nothing(model, tmp_path):
    """Gradients of 1e25 are finite in float32, whose largest number is 3e38; their squares not."""
    weights = []
    for has_huge in (False, True):
        trainer = GradientTrainer(str(model))
        begin(trainer, "a", rank=4)
        trainer.backward("a", [a_part()], negative_logprob)
        if has_huge:
            with pytest.raises(DataError, match="the norm of the gradients inf; nothing changed"):
                trainer.backward("a", [a_part(seed=3)], lambda _, one: -1e25 * one.sum())
        trainer.step("a", lr=RATE)
        weights.append(weights_of(trainer, "a", tmp_path / str(has_huge)))

    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("adamw", [{"lr": RATE, "eps": 0.0}, {"lr": 1e20, "weight_decay": 1e20}])
def test_a_step_that_makes_a_weight_no_number_is_told(model, adamw):
    """One half of an adapter has gradients of 0 at first: AdamW divides 0 by 0 + eps."""
    trainer = GradientTrainer(str(model))
    begin(trainer, "a", rank=4)
    trainer.backward("a", [a_part()], negative_logprob)

    with pytest.raises(DataError, match="would not be a finite number"):
        trainer.step("a", **adamw)


def test_a_state_that_was_written_with_a_gpu_is_loaded_without(model, tmp_path, monkeypatch):
    trainer = GradientTrainer(str(model))
    begin(trainer, "a", rank=4)
    trainer.backward("a", [a_part()], negative_logprob)
    trainer.step("a", lr=RATE)
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
    trainer.save("a", tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    trainer.load("a", tmp_path, with_optimizer=True)

    assert trainer._runs["a"][1].state_dict()["state"][0]["step"] == 1


def test_twenty_steps_are_those_of_adamw_with_changing_rates(model):
    trainer = GradientTrainer(str(model))
    begin(trainer, "a", rank=4)
    names = [name for name, one in trainer.module.named_parameters() if one.requires_grad]
    module = dict(trainer.module.named_parameters())
    own = {name: module[name].detach().clone().requires_grad_() for name in names}
    expected = torch.optim.AdamW(own.values(), betas=(0.8, 0.9), eps=1e-8, weight_decay=0.1)

    for step in range(20):
        trainer.backward("a", [a_part(seed=step)], negative_logprob)
        rate = 1e-3 * (1 + step % 3)
        for name in names:
            own[name].grad = module[name].grad.clone()
        torch.nn.utils.clip_grad_norm_(own.values(), 5.0)
        expected.param_groups[0]["lr"] = rate
        expected.step()
        how = {"betas": (0.8, 0.9), "eps": 1e-8, "weight_decay": 0.1}
        trainer.step("a", max_norm=5.0, lr=rate, **how)

    assert names
    assert all(torch.allclose(module[name], own[name], atol=1e-6) for name in names)


@pytest.mark.parametrize("with_optimizer", [True, False])
def test_a_run_goes_on_from_what_it_saved(model, tmp_path, with_optimizer):
    trainer = GradientTrainer(str(model))
    begin(trainer, "a", rank=4)
    train(trainer, {"a": 4}, steps=2)
    trainer.save("a", tmp_path / "state")
    begin(trainer, "b", rank=4, seed=7)
    trainer.load("b", tmp_path / "state", with_optimizer=with_optimizer)
    for run in ("a", "b"):
        trainer.backward(run, [a_part(seed=5)], negative_logprob)
        trainer.step(run, lr=RATE)

    one, other = (weights_of(trainer, run, tmp_path / run) for run in ("a", "b"))
    assert all(torch.equal(one[name], other[name]) for name in one) == with_optimizer


def test_an_adapter_of_another_rank_is_not_loaded(model, tmp_path):
    trainer = GradientTrainer(str(model))
    begin(trainer, "a", rank=4)
    trainer.save("a", tmp_path / "state")
    begin(trainer, "b", rank=8)

    with pytest.raises(CheckpointError, match="another rank"):
        trainer.load("b", tmp_path / "state", with_optimizer=False)


def test_a_run_that_ended_leaves_the_model_as_it_was(model):
    trainer = GradientTrainer(str(model))
    begin(trainer, "a", rank=4)
    (before,), _ = trainer.backward("a", [a_part()], negative_logprob, forward_only=True)
    begin(trainer, "b", rank=8)
    trainer.backward("b", [a_part()], negative_logprob)
    trainer.step("b", lr=RATE)
    trainer.end("b")
    (after,), _ = trainer.backward("a", [a_part()], negative_logprob, forward_only=True)

    assert torch.equal(before, after)
