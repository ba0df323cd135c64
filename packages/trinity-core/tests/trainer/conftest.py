"""A tiny model, experiences to train it on, and a trainer of a few words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from trinity.common.config.algorithm import AlgorithmConfig
from trinity.common.config.explorer import ExplorerConfig
from trinity.common.config.trainer import TrainerConfig
from trinity.common.experience import EID, Experience
from trinity.trainer.torch_trainer import TorchTrainer
from trinity_testing.tiny import make_tiny_model, make_tiny_tokenizer

VOCAB = 384


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), vocab=VOCAB)


@pytest.fixture
def an_experience():
    """Return a builder of rows whose tokens follow from a seed."""

    def build(seed=0, *, prompt=4, response=5, reward=1.0, task=0, run=0, tokens=None, **values):
        generator = torch.Generator().manual_seed(seed)
        if tokens is None:
            tokens = torch.randint(3, VOCAB, (prompt + response,), generator=generator)
        return Experience(
            tokens=tokens, prompt_length=prompt, reward=reward, eid=EID(0, task, run), **values
        )

    return build


@pytest.fixture
def ragged(an_experience):
    """Return two groups of four rows of many lengths, with a hole in some masks."""

    def build(**values):
        rows = []
        for number in range(8):
            response = (3, 9, 5, 7, 4, 8, 6, 2)[number]
            mask = [True] * response
            mask[1] = number % 3 != 0
            row = an_experience(
                number,
                prompt=3 + number % 4,
                response=response,
                reward=float(number % 2) + 0.25 * (number == 3),
                task=number // 4,
                run=number % 4,
                action_mask=mask,
                logprobs=[-5.0 - 0.1 * number] * response,
                **values,
            )
            rows.append(row)
        return rows

    return build


@pytest.fixture
def a_trainer(tiny):
    """Return a builder of trainers; keywords are settings of ``algorithm`` and ``trainer``."""

    def build(
        *,
        total_steps=10,
        lr=1e-3,
        trainer=None,
        model_path=tiny,
        lora=None,
        max_model_len=4096,
        **algorithm,
    ):
        settings = {
            "algorithm_type": "grpo",
            "advantage_fn": "grpo",
            "policy_loss_fn": "ppo",
            "kl_loss_fn": "none",
            "entropy_loss_fn": "none",
            "optimizer": {"lr": lr, "weight_decay": 0.0},
        }
        config = SimpleNamespace(
            algorithm=AlgorithmConfig(**(settings | algorithm)),
            trainer=TrainerConfig(**({"max_token_len_per_gpu": 4096} | (trainer or {}))),
            model=SimpleNamespace(
                trust_remote_code=False,
                critic_model_path="",
                lora_configs=lora,
                max_model_len=max_model_len,
            ),
            explorer=ExplorerConfig(),
            audit="warn",
        )
        return TorchTrainer(config, model_path=str(model_path), total_steps=total_steps, seed=0)

    return build


@pytest.fixture(scope="session")
def with_buffers(tmp_path_factory):
    """Return a model folder whose router has a bias that is no parameter, 0.5 for each expert."""
    folder = tmp_path_factory.mktemp("buffers")
    config = AutoConfig.for_model(
        "glm4_moe",
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=32,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        first_k_dense_replace=1,
        pad_token_id=0,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.fill_(0.5)
    model.save_pretrained(folder)
    make_tiny_tokenizer(vocab=VOCAB).save_pretrained(folder)
    return folder
