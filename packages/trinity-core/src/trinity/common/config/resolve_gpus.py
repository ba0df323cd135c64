"""Defaults that follow the GPUs: engines, number formats, sync method, and what fits into memory.

A value of the file wins always. Each default that is filled in here has its reason as its origin,
which ``trinity config show`` prints, and the run's header has a line of the plan.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from trinity.common.config.check_algorithm import has_reference
from trinity.common.config.check_ranks import trained_beside
from trinity.common.config.memory import (
    SAME_NAMES,
    TrainerMemory,
    adapter_parameters,
    cache_tokens,
    engine_bytes,
    known_shape,
    usable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.config.config import Config
    from trinity.common.config.machine import Machine
    from trinity.common.config.parts import NamedParts
    from trinity.common.config.resolve import Resolution

_ENGINE = "explorer.rollout_model"
_SHARE = f"{_ENGINE}.gpu_memory_utilization"
_TOKENS = "trainer.max_token_len_per_gpu"
_LEAST_CACHE = 0.1  # of a GPU that an engine shares: what it may keep for keys and values at least
_MOST_OF_ENGINE = 0.6  # of a GPU that the trainer uses, too
_ENGINE_MODES = ("both", "explore", "bench")


def resolve_gpus(work: Resolution) -> None:
    """Fill in how many engines there are, and the number format, on a machine with GPUs."""
    config, machine = work.config, work.machine
    if config.mode in _ENGINE_MODES:
        number, origin = _engines(config, machine)
        work.default(f"{_ENGINE}.engine_num", number, origin=origin)
    if machine.has_bf16:
        reason = "GPUs compute bfloat16; master weights stay float32"
        work.default("trainer.precision", "bfloat16", origin=reason)
    if config.has_trainer and config.trainer.prefix_sharing == "auto":
        work.note(
            "trainer.prefix_sharing auto: prompts are computed once where they have as many tokens "
            "as responses"
        )


def _engines(config: Config, machine: Machine) -> tuple[int, str]:
    """Return how many engines are the default, and why: of several machines each is of one side."""
    width, machines = config.explorer.rollout_model.tensor_parallel_size, _gpus_of(config, machine)
    of_machine = machines[0] // width
    if config.mode != "both" or config.is_colocated:
        return max(1, len(machines) * of_machine), "all GPUs, which the trainer uses too"
    if len(machines) > 1:
        return max(1, len(machines) // 2 * of_machine), "half of the machines"
    return max(1, machines[0] // (2 * width)), "half of the GPUs"


def default_sync_method(config: Config, machine: Machine) -> str:
    """Return how weights go to the engines where the file does not say it.

    ``nccl`` from GPU to GPU; ``ipc`` where trainer and engines share theirs on one machine.
    """
    shares = config.is_colocated or num_gpus(config, machine) == 1
    if machine.num_gpus == 0 or config.mode != "both" or (shares and config.cluster.node_num > 1):
        return "memory"
    return "ipc" if shares else "nccl"


def resolve_memory(work: Resolution) -> None:
    """Fill in what lets the trainer fit: sharding, recomputing, micro-batches, the engine's part.

    Where nothing of it fits, nothing is changed, and the check of the configuration says so.
    """
    config, machine = work.config, work.machine
    plan = trainer_memory(config, machine, work.parts)
    if plan is None or machine.gpu_bytes is None:
        return
    if plan.default_strategy(machine.gpu_bytes) == "fsdp2":
        reason = f"weights, gradients and optimizer states are {_gb(plan.state)}"
        work.default("trainer.trainer_strategy", "fsdp2", origin=reason)
        plan = replace(plan, strategy=config.trainer.trainer_strategy)
    room = trainer_capacity(config, machine, plan)
    tokens = config.trainer.max_token_len_per_gpu or 0
    if plan.peak(tokens) > room and not plan.recomputes:
        reason = f"without it a step needs {_gb(plan.peak(tokens))} of {_gb(machine.gpu_bytes)}"
        work.default("trainer.gradient_checkpointing", value=True, origin=reason)
        plan = replace(plan, recomputes=config.trainer.gradient_checkpointing)
    if plan.peak(tokens) > room and plan.most_tokens(room) >= longest_row(config):
        work.default(_TOKENS, plan.most_tokens(room), origin="what fits into a GPU")
    share = gpu_share(config, machine, work.parts)
    if share is not None:
        work.default(_SHARE, share, origin="the trainer uses the same GPU")
    for line in plan_lines(config, machine, work.parts):
        work.note(f"{line} (computed)")


def longest_row(config: Config) -> int:
    """Return the most tokens that a rank has of one row; ranks may share it (Ulysses)."""
    tokens = (config.model.max_prompt_tokens or 0) + (config.model.max_response_tokens or 0)
    return math.ceil(tokens / config.trainer.ulysses_sequence_parallel_size)


def gpu_share(config: Config, machine: Machine, parts: NamedParts) -> float | None:
    """Return what part of a GPU an engine beside the trainer gets; None: nothing to share."""
    plan = trainer_memory(config, machine, parts)
    if plan is None or machine.gpu_bytes is None or not shares_gpu(config, machine):
        return None
    left = left_of_gpu(config, machine, plan)
    most = 1.0 if config.is_colocated else _MOST_OF_ENGINE
    return round(min(most, max(_engine_part(config, machine, plan), left)), 2)


def left_of_gpu(config: Config, machine: Machine, plan: TrainerMemory) -> float:
    """Return what part of a GPU the trainer leaves its engine; one that sleeps meets no step."""
    tokens = config.trainer.max_token_len_per_gpu or 0
    used = plan.at_rest if config.is_colocated else plan.peak(tokens)
    assert machine.gpu_bytes is not None
    return (usable(machine.gpu_bytes) - used) / machine.gpu_bytes


def trainer_memory(config: Config, machine: Machine, parts: NamedParts) -> TrainerMemory | None:
    """Return how the trainer would hold the model; None: it trains none, or a shape is unknown."""
    if machine.model is None or not config.has_trainer:
        return None
    critic = None
    if "a critic" in trained_beside(config, parts):
        path = config.model.critic_model_path
        is_same = path in {"", config.model.model_path}
        critic = machine.model if is_same else known_shape(path)
        if critic is None:
            return None
    trainer, lora = config.trainer, config.model.lora_configs
    return TrainerMemory(
        shape=machine.model,
        strategy=trainer.trainer_strategy,
        num_ranks=num_ranks(config, machine),
        recomputes=trainer.gradient_checkpointing,
        has_reference=has_reference(config, parts),
        adapters=sum(adapter_parameters(machine.model, one.lora_rank) for one in lora or ()),
        critic=critic,
        **{name: getattr(trainer, name) for name in SAME_NAMES},
    )


def trainer_capacity(config: Config, machine: Machine, plan: TrainerMemory) -> float:
    """Return the bytes that the trainer may use on each of its GPUs."""
    assert machine.gpu_bytes is not None
    room = usable(machine.gpu_bytes)
    if shares_gpu(config, machine) and not config.is_colocated:
        room -= _engine_part(config, machine, plan) * machine.gpu_bytes
    return max(0.0, room)


def num_gpus(config: Config, machine: Machine) -> int:
    """Return how many GPUs the run may use, on all of its machines."""
    return sum(_gpus_of(config, machine))


def num_ranks(config: Config, machine: Machine) -> int:
    """Return how many processes train: as asked, else as many as have GPUs beside the engines."""
    if config.trainer.num_ranks or machine.is_one_process:
        return max(1, config.trainer.num_ranks)
    is_alone = config.mode == "train" and not config.is_standalone
    engines = 0 if is_alone or config.is_colocated else config.explorer.rollout_model.engine_num
    return ranks_beside(config, machine, engines=engines)


def ranks_beside(config: Config, machine: Machine, *, engines: int) -> int:
    """Return how many ranks have a GPU each beside so many engines, one at least."""
    machines, width = _gpus_of(config, machine), config.explorer.rollout_model.tensor_parallel_size
    return max(1, gpus_left(machines, machines, num=engines, width=width))


def gpus_left(counts: Sequence[int], totals: Sequence[int], *, num: int, width: int) -> int:
    """Return how many GPUs are left for ranks beside so many engines; 0: not even for these.

    Ranks are on one machine, or on whole ones: one that engines use too slows all ranks down.
    ``counts`` are the GPUs of each machine that may be used, ``totals`` those that it has.
    """
    left = left_by_engines(counts, num=num, width=width)
    if not left:
        return 0
    whole = sum(here for here, total in zip(left, totals, strict=True) if here == total)
    return max(whole, *left)


def left_by_engines(counts: Sequence[int], *, num: int, width: int) -> list[int] | None:
    """Return what machines have left once each engine stands where it leaves least; None: nowhere.

    >>> left_by_engines([8, 8], num=3, width=2)
    [2, 8]
    """
    left = list(counts)
    for _ in range(num):
        fitting = [place for place, count in enumerate(left) if count >= width]
        if not fitting:
            return None
        left[min(fitting, key=lambda place: left[place])] -= width
    return left


def wanted_gpus(config: Config, machine: Machine, parts: NamedParts) -> tuple[int, int, int]:
    """Return how many engines, of how many GPUs each, and ranks have GPUs of their own."""
    engine = config.explorer.rollout_model
    num, width = 0 if config.mode == "train" else engine.engine_num, engine.tensor_parallel_size
    ranks = max(1, config.trainer.num_ranks) if config.has_trainer else 0
    component = parts.find("rollout_engine", engine.engine_type)
    is_for_cpu = component is None or component.spec.default_for == "cpu"
    can_share = is_for_cpu or num_gpus(config, machine) == 1
    if can_share and num and width == ranks == 1:
        ranks = 0  # the trainer sits on a GPU of theirs
    return (max(num, ranks), width, 0) if config.is_colocated else (num, width, ranks)


def are_enough(config: Config, machine: Machine, parts: NamedParts) -> bool:
    """Return whether there are as many GPUs as are wanted, for each engine on one machine."""
    num, width, ranks = wanted_gpus(config, machine, parts)
    left = left_by_engines(_gpus_of(config, machine), num=num, width=width)
    return left is not None and sum(left) >= ranks


def with_all_gpus(config: Config, machine: Machine, *, width: int = 0) -> tuple[Config, Machine]:
    """Return copies of both as without ``--local``, and with as many engines as are then used.

    ``width``: GPUs of an engine; 0: as many as before.
    """
    gpus, config = machine.gpus_over_ray, config.copied()
    engine = config.explorer.rollout_model
    engine.tensor_parallel_size = width or engine.tensor_parallel_size
    if any(gpus):
        config.cluster.node_num, config.cluster.gpu_per_node = len(gpus), gpus[0]
        machine = replace(machine, num_gpus=gpus[0], is_one_process=False)
    if config.mode in _ENGINE_MODES and not config.source.where(f"{_ENGINE}.engine_num"):
        engine.engine_num, _ = _engines(config, machine)
    return config, machine


def shares_gpu(config: Config, machine: Machine) -> bool:
    """Return whether trainer and engine have GPUs between them: the only one, or in turns all."""
    is_fed = config.mode == "both" or config.is_plugin_mode
    return config.is_colocated or (is_fed and config.has_trainer and _is_one(config, machine))


def plan_lines(config: Config, machine: Machine, parts: NamedParts) -> list[str]:
    """Return what trainer and engines need; empty: it is not known."""
    plan = trainer_memory(config, machine, parts)
    if plan is None or machine.gpu_bytes is None:
        return []
    room = trainer_capacity(config, machine, plan)
    tokens = config.trainer.max_token_len_per_gpu or 0
    lora = f"LoRA with {plan.adapters / 1e6:.1f} million parameters, " if plan.adapters else ""
    how = f"{lora}{plan.strategy}, {plan.precision}{', recomputing' if plan.recomputes else ''}"
    how += "".join(f", {name}" for name in sorted(plan.offloads))
    how += ", with a critic" if plan.critic else ""
    lines = [
        f"trainer on {_gpus(plan.num_ranks)} ({how}): {_gb(plan.at_rest)} at rest, "
        f"{_gb(plan.peak(tokens))} at the peak of a step, of {_gb(room)} that can be used; "
        f"micro-batches of {tokens:,} tokens, at most {plan.most_tokens(room):,} fit"
    ]
    if config.mode == "train":
        return lines
    rollout = config.explorer.rollout_model
    dtype, width = rollout.dtype or plan.precision, rollout.tensor_parallel_size
    weights = engine_bytes(plan.shape, dtype=dtype, width=width)
    cache = max(0.0, rollout.gpu_memory_utilization * machine.gpu_bytes - weights)
    num_tokens = cache_tokens(plan.shape, cache, dtype=dtype, width=width)
    where = "beside the trainer" if shares_gpu(config, machine) else f"on {_gpus(width)}"
    engines = f"{rollout.engine_num} engines, each" if rollout.engine_num > 1 else "engine"
    return [
        *lines,
        f"{engines} {where} ({dtype}): {_gb(weights)} of weights, cache for {num_tokens:,} tokens",
    ]


def _gpus(number: int) -> str:
    return f"{number} GPU{'s'[: number > 1]}"


def _gpus_of(config: Config, machine: Machine) -> list[int]:
    """Return how many GPUs the run may use of each machine."""
    return max(1, config.cluster.node_num) * [config.cluster.gpu_per_node or machine.num_gpus]


def _is_one(config: Config, machine: Machine) -> bool:
    rollout = config.explorer.rollout_model
    engines = rollout.engine_num * rollout.tensor_parallel_size
    return num_gpus(config, machine) == engines == num_ranks(config, machine) == 1


def _engine_part(config: Config, machine: Machine, plan: TrainerMemory) -> float:
    """Return the least part of a shared GPU that an engine works with."""
    assert machine.gpu_bytes is not None
    dtype = config.explorer.rollout_model.dtype or plan.precision
    return engine_bytes(plan.shape, dtype=dtype) / machine.gpu_bytes + _LEAST_CACHE


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"
