"""Does the model fit into the GPUs? Asked before anything starts, of its ``config.json`` alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from trinity.common.config.memory import adapter_parameters, engine_bytes
from trinity.common.config.resolve_gpus import (
    left_of_gpu,
    num_gpus,
    shares_gpu,
    trainer_capacity,
    trainer_memory,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config.config import Config
    from trinity.common.config.machine import Machine
    from trinity.common.config.memory import TrainerMemory
    from trinity.common.config.parts import NamedParts
    from trinity.common.config.problem import Problem

_SHOWN = 3
_RANK = 32  # of the adapters that are named as a way out


def memory_problems(config: Config, machine: Machine, parts: NamedParts) -> Iterator[Problem]:
    """Yield that an engine or the trainer does not fit, with what makes it fit."""
    yield from _of_engines(config, machine)
    plan = trainer_memory(config, machine, parts)
    if plan is None or machine.gpu_bytes is None:
        return
    yield from _of_shared_gpu(config, machine, plan)
    room = trainer_capacity(config, machine, plan)
    tokens = config.trainer.max_token_len_per_gpu or 0
    peak = plan.peak(tokens)
    offloads = config.trainer.offload_policy or config.trainer.param_offload
    if peak <= room or offloads or config.trainer.optimizer_offload:
        return
    what = (
        f"has {plan.shape.parameters / 1e9:.1f} billion parameters: a train step needs "
        f"{peak / 1e9:.0f} GB on {'each of ' * (plan.num_ranks > 1)}{plan.num_ranks} "
        f"GPU{'s'[: plan.num_ranks > 1]} (computed), and "
        f"{room / 1e9:.0f} GB of {machine.gpu_bytes / 1e9:.0f} GB can be used."
    )
    fitting = [
        words
        for words, changed, most in _changes(config, machine, plan, room)
        if changed.peak(most) <= room
    ]
    remedy = "No change of a single key makes it fit; use more GPUs, or a smaller model."
    if fitting:
        remedy = f"What makes it fit, the cheapest first: {'; '.join(fitting[:_SHOWN])}."
    yield config.source.problem("model.model_path", what, remedy)


def _of_engines(config: Config, machine: Machine) -> Iterator[Problem]:
    rollout = config.explorer.rollout_model
    if machine.model is None or machine.gpu_bytes is None or config.mode == "train":
        return
    width, share = rollout.tensor_parallel_size, rollout.gpu_memory_utilization
    dtype = rollout.dtype or config.trainer.precision
    weights = engine_bytes(machine.model, dtype=dtype, width=width)
    if weights >= share * machine.gpu_bytes:
        what = (
            f"is {width}: an engine holds {weights / 1e9:.0f} GB of weights on each of its GPUs "
            f"(computed), and may use {share:g} of {machine.gpu_bytes / 1e9:.0f} GB."
        )
        enough = math.ceil(weights * width / (0.8 * share * machine.gpu_bytes))
        path = "explorer.rollout_model.tensor_parallel_size"
        yield config.source.problem(path, what, f"Use {enough} or more, or dtype bfloat16.")


def _of_shared_gpu(config: Config, machine: Machine, plan: TrainerMemory) -> Iterator[Problem]:
    share = config.explorer.rollout_model.gpu_memory_utilization
    left = left_of_gpu(config, machine, plan)
    path = "explorer.rollout_model.gpu_memory_utilization"
    if shares_gpu(config, machine) and config.source.where(path) and share > left > 0:
        what = f"is {share:g}, but the trainer uses the same GPU and leaves {left:.2f} of it."
        yield config.source.problem(path, what, "Leave it out: the part is then computed.")


def _changes(
    config: Config, machine: Machine, plan: TrainerMemory, room: float
) -> Iterator[tuple[str, TrainerMemory, int]]:
    """Yield changes in words with what they cost, the plan after each, and its micro-batch."""
    tokens = config.trainer.max_token_len_per_gpu or 0
    longest = (config.model.max_prompt_tokens or 0) + (config.model.max_response_tokens or 0)
    fewer = min(tokens, max(longest, plan.most_tokens(room)))
    yield f"trainer.max_token_len_per_gpu: {fewer} (more micro-batches)", plan, fewer
    half = replace(plan, precision="bfloat16")
    yield "trainer.precision: bfloat16 (rounded products)", half, tokens
    less = replace(half, recomputes=True)
    yield "trainer.gradient_checkpointing: true (a third more time for a step)", less, tokens
    if plan.critic:  # which nothing shards
        longest = min(tokens, max(longest, less.most_tokens(room)))
        words = f"trainer.gradient_checkpointing: true and max_token_len_per_gpu: {longest}"
        yield f"{words} (slower)", less, longest
        return
    sharded = replace(less, strategy="fsdp2")
    both = "trainer.trainer_strategy: fsdp2 with gradient_checkpointing: true"
    yield f"{both} (weights are gathered in each pass)", sharded, tokens
    smaller = min(tokens, max(longest, sharded.most_tokens(room)))
    yield f"{both} and max_token_len_per_gpu: {smaller} (slower)", sharded, smaller
    if not plan.adapters:
        adapters = replace(sharded, adapters=adapter_parameters(plan.shape, _RANK))
        how = both if plan.num_ranks > 1 else "trainer.gradient_checkpointing: true"
        words = f"model.lora_configs: [{{lora_rank: {_RANK}}}], {how}"
        yield f"{words} (adapters alone are trained)", adapters, tokens
    ranks = num_gpus(config, machine) - config.explorer.rollout_model.tensor_parallel_size
    if ranks > plan.num_ranks and config.mode != "train":
        more = replace(sharded, num_ranks=ranks)
        yield f"{both} and explorer.rollout_model.engine_num: 1 (slower rollouts)", more, smaller
