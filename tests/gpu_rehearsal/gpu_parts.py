"""A tiny model, rows to train on, and a trainer on the GPU that the process sees."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from trinity.common.config.algorithm import AlgorithmConfig
from trinity.common.config.explorer import ExplorerConfig
from trinity.common.config.model import ModelConfig
from trinity.common.config.trainer import TrainerConfig
from trinity.common.experience import EID, Experience
from trinity.trainer.torch_trainer import TorchTrainer
from trinity_testing.tiny import make_tiny_model

ALGORITHM = {
    "algorithm_type": "grpo",
    "advantage_fn": "grpo",
    "policy_loss_fn": "ppo",
    "kl_loss_fn": "none",
    "entropy_loss_fn": "none",
    "optimizer": {"lr": 1e-3},
}
LORA = {"lora_rank": 4, "lora_alpha": 8, "target_modules": "all-linear"}
CASES: dict[str, dict[str, Any]] = {
    "grpo": {},
    "kl": {"kl_loss_fn": "k2"},
    "entropy": {"entropy_loss_fn": "default"},
    "bfloat16": {"trainer": {"precision": "bfloat16"}},
    "no sharing": {"trainer": {"prefix_sharing": "off"}},
    "small micro-batches": {"trainer": {"max_token_len_per_gpu": 128, "prefix_sharing": "off"}},
    "recomputing": {"trainer": {"gradient_checkpointing": True}},
    "ppo": {"algorithm_type": "ppo", "advantage_fn": "ppo"},
    "sft": {"algorithm_type": "sft", "advantage_fn": None, "policy_loss_fn": "sft"},
    "gspo": {"policy_loss_fn": "gspo"},
    "lora": {"lora": [LORA]},
    "offload": {"trainer": {"param_offload": True, "optimizer_offload": True}},
}


def a_model(folder: Path, *, layers: int = 4, hidden: int = 32, vocab: int = 512) -> Path:
    return make_tiny_model(
        folder / f"{layers}-{hidden}-{vocab}",
        architecture="qwen2",
        layers=layers,
        hidden=hidden,
        heads=2,
        vocab=vocab,
        max_positions=4096,
        init_std=0.05,
    )


def rows(num: int = 16, *, prompt: int = 24, response: int = 24, vocab: int = 512):
    """Return groups of four that share their prompt."""
    found = []
    for number in range(num):
        task, run = divmod(number, 4)
        shared, own = (
            torch.Generator().manual_seed(task),
            torch.Generator().manual_seed(100 + number),
        )
        length = response - number % 5
        drawn = [
            torch.randint(3, vocab, (prompt,), generator=shared),
            torch.randint(3, vocab, (length,), generator=own),
        ]
        found.append(
            Experience(
                tokens=torch.cat(drawn),
                prompt_length=prompt,
                reward=float(number % 2),
                eid=EID(0, task, run),
                logprobs=[-6.0] * length,
                info={"model_version": 0},
            )
        )
    return found


def a_trainer(path: Path, *, trainer=None, lora=None, group=None, **algorithm) -> TorchTrainer:
    config = SimpleNamespace(
        algorithm=AlgorithmConfig(**(ALGORITHM | algorithm)),
        trainer=TrainerConfig(**({"max_token_len_per_gpu": 4096} | (trainer or {}))),
        model=ModelConfig(lora_configs=lora),
        explorer=ExplorerConfig(),
        audit="warn",
        synchronizer=SimpleNamespace(sync_timeout=60.0),
    )
    return TorchTrainer(config, model_path=str(path), total_steps=100, seed=0, group=group)
