"""The message of a GPU that is full has the plan of the header: the same numbers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from trinity.common.config.trainer import TrainerConfig
from trinity.trainer.memory_plan import MemoryPlan

QWEN2_5_7B = {
    **{"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "vocab_size": 152064},
    **{"num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944},
}


def a_model(*, adapters: int = 0):
    """Return what a plan asks of a model of 7,615,616,512 parameters."""
    sizes = [7_615_616_512, adapters] if adapters else [7_615_616_512]
    parameters = [
        torch.nn.Parameter(torch.empty(size, device="meta"), requires_grad=size == sizes[-1])
        for size in sizes
    ]
    config = SimpleNamespace(to_dict=lambda: QWEN2_5_7B)
    return SimpleNamespace(config=config, parameters=lambda: iter(parameters))


@pytest.mark.parametrize(
    ("settings", "num_ranks", "adapters", "mib"),
    [  # bytes of 2^20: 12 P; 2 P and 12 a; 12 P of which four ranks share a copy
        ({}, 1, 0, "87,154"),
        ({"precision": "bfloat16"}, 1, 80_740_352, "15,450"),
        ({"trainer_strategy": "fsdp2", "fsdp_size": 4}, 16, 0, "21,788"),
    ],
)
def test_the_plan_of_the_message_counts_adapters_and_shards(
    settings, num_ranks, adapters, mib
) -> None:
    plan = MemoryPlan(
        TrainerConfig(**settings),
        model=a_model(adapters=adapters),
        num_ranks=num_ranks,
        has_reference=False,
    )

    said = str(plan.explained(torch.OutOfMemoryError("CUDA out of memory."), phase="optimizer"))

    assert f"The plan was {mib} MiB at rest" in said
