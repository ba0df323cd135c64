"""Does the model fit into the GPUs? Asked before anything starts, of its ``config.json`` alone."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from trinity.common.config.memory import adapter_parameters, engine_bytes, usable
from trinity.common.config.resolve_gpus import (
    are_enough,
    left_of_gpu,
    longest_row,
    num_ranks,
    ranks_beside,
    shares_gpu,
    trainer_capacity,
    trainer_memory,
    with_all_gpus,
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
_WIDTHS = (2, 4, 8, 16, 32)  # GPUs of an engine, which divide heads and keys of most models
_KEYS = {  # what of the plan a key changes -> the key, and what it costs
    "precision": ("trainer.precision: bfloat16", "rounded products"),
    "recomputes": ("trainer.gradient_checkpointing: true", "a third more time for a step"),
    "is_sharded": ("trainer.trainer_strategy: fsdp2", "weights are gathered in each pass"),
    "adapters": (f"model.lora_configs: [{{lora_rank: {_RANK}}}]", "adapters alone are trained"),
    "num_ranks": ("explorer.rollout_model.engine_num: 1", "slower rollouts"),
}


def memory_problems(config: Config, machine: Machine, parts: NamedParts) -> Iterator[Problem]:
    """Yield that an engine or the trainer does not fit, with what makes it fit."""
    yield from _of_engines(config, machine, parts)
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
    fitting = list(islice(_fitting(config, machine, plan, room), _SHOWN))
    fitting += _over_ray(config, machine, plan)
    remedy = "No change of a single key makes it fit; use more GPUs, or a smaller model."
    if fitting:
        remedy = f"What makes it fit, the cheapest first: {'; '.join(fitting)}."
    yield config.source.problem("model.model_path", what, remedy)


def _of_engines(config: Config, machine: Machine, parts: NamedParts) -> Iterator[Problem]:
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
        heads = machine.model_num_heads or 0
        widths = [n for n in _WIDTHS if n >= enough and heads % n == 0 and not config.is_colocated]
        copies = {n: with_all_gpus(config, machine, width=n) for n in widths}
        ways = [str(n) for n, both in copies.items() if are_enough(*both, parts)][:1]
        if not parts.spreads(rollout.engine_type):
            ways = [f"{n} and {_that_spreads(parts)}" for n in ways]
        if machine.is_one_process and config.has_trainer:  # no GPU is left beside a wide engine
            ways = [f"{way} over Ray (without --local)" for way in ways]
        ways += ["dtype bfloat16"] if dtype == "float32" else []
        remedy = f"Use {' or '.join(ways)}." if ways else "Use larger GPUs, or a smaller model."
        yield config.source.problem("explorer.rollout_model.tensor_parallel_size", what, remedy)


def _that_spreads(parts: NamedParts) -> str:
    names = [one.name for one in parts.manager.components("rollout_engine")]
    found = [f"engine_type: {name}" for name in names if parts.spreads(name)]
    return found[0] if found else "an engine_type that provides 'tensor_parallel'"


def _over_ray(config: Config, machine: Machine, plan: TrainerMemory) -> list[str]:
    """Return how it fits without ``--local``, by the defaults there, or with one engine there."""
    if sum(machine.gpus_over_ray) < 2 or machine.gpu_bytes is None:
        return []
    room = usable(machine.gpu_bytes)
    config, machine = with_all_gpus(config, machine)
    is_asked = plan.critic or config.source.where("trainer.trainer_strategy")
    other = plan if is_asked else replace(plan, strategy="fsdp2")
    is_cut = bool(config.source.where("trainer.max_token_len_per_gpu"))
    tokens = (config.trainer.max_token_len_per_gpu or 0) if is_cut else longest_row(config)
    engine, size = config.explorer.rollout_model, config.trainer.ulysses_sequence_parallel_size
    for engines, key in ((engine.engine_num, ""), (1, f" and {_KEYS['num_ranks'][0]}")):
        engine.engine_num = engines
        ranks = num_ranks(config, machine)
        if ranks % size == 0 and replace(other, num_ranks=ranks).peak(tokens) <= room:
            return [f"run over Ray, without --local{key}"]
    return []


def _of_shared_gpu(config: Config, machine: Machine, plan: TrainerMemory) -> Iterator[Problem]:
    share = config.explorer.rollout_model.gpu_memory_utilization
    left = left_of_gpu(config, machine, plan)
    path = "explorer.rollout_model.gpu_memory_utilization"
    if shares_gpu(config, machine) and config.source.where(path) and share > left > 0:
        what = f"is {share:g}, but the trainer uses the same GPU and leaves {left:.2f} of it."
        yield config.source.problem(path, what, "Leave it out: the part is then computed.")


def _fitting(config: Config, machine: Machine, plan: TrainerMemory, room: float) -> Iterator[str]:
    """Yield keys that make it fit, with what they cost; none beside those that are enough."""
    tokens = config.trainer.max_token_len_per_gpu or 0
    longest = longest_row(config)
    found: list[set[str]] = []
    for other in _others(config, machine, plan):
        fewer = min(tokens, max(longest, other.most_tokens(room)))
        keys = [
            key
            for name, key in _KEYS.items()
            if getattr(other, name) not in {False, getattr(plan, name)}
        ]
        if fewer < tokens:
            keys.append((f"trainer.max_token_len_per_gpu: {fewer}", "more micro-batches"))
        costs = [cost for _, cost in keys]
        if other.peak(fewer) <= room and not any(one <= set(costs) for one in found):
            found.append(set(costs))
            yield f"{' and '.join(words for words, _ in keys)} ({', '.join(costs)})"


def _others(config: Config, machine: Machine, plan: TrainerMemory) -> list[TrainerMemory]:
    """Return how else the trainer could hold the model, the cheapest first."""
    half = replace(plan, precision="bfloat16") if machine.has_bf16 else plan
    recomputed = [replace(one, recomputes=True) for one in (plan, half)]
    others = [plan, half, *recomputed]
    if plan.critic:  # which nothing shards
        return others
    strategy = "fsdp2" if plan.strategy == "ddp" else plan.strategy
    sharded = [replace(one, strategy=strategy) for one in recomputed]
    others += sharded if plan.num_ranks > 1 else []
    size = config.trainer.ulysses_sequence_parallel_size
    if not plan.adapters and size == 1:  # ranks that share rows train no adapters
        others += [_adapted(one, plan, config, machine) for one in others]
    ranks = ranks_beside(config, machine, engines=1)
    is_free = config.mode != "train" and not config.trainer.num_ranks
    if ranks > plan.num_ranks and is_free and ranks % size == 0:
        others += [replace(one, num_ranks=ranks) for one in sharded]
    return others


def _adapted(
    one: TrainerMemory, plan: TrainerMemory, config: Config, machine: Machine
) -> TrainerMemory:
    """Return the same with adapters, sharded as asked or by the default that they bring about."""
    lora = replace(one, adapters=adapter_parameters(plan.shape, _RANK))
    is_asked = config.source.where("trainer.trainer_strategy") or one.strategy != plan.strategy
    is_large = machine.gpu_bytes is None or lora.is_large(machine.gpu_bytes)
    return lora if is_asked or is_large else replace(lora, strategy="ddp")
