"""``trinity plan``: what a configuration needs of its GPUs, before anything starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from trinity_debug.plan_options import (
    File,
    GpuMemory,
    Gpus,
    Local,
    MaxOffPolicy,
    Record,
    Settings,
    Shared,
    Simulate,
    Steps,
    Tflops,
    Times,
    TokensPerS,
    TrainGpus,
)

if TYPE_CHECKING:
    from trinity.common.config import Config, Machine
    from trinity.common.config.memory import ModelShape
    from trinity.common.config.parts import NamedParts

_FOLLOWS_GPUS = (
    "model.max_model_len",  # what memory depends on; a guess where the model is not known
    "explorer.rollout_model.engine_type",
    "explorer.rollout_model.engine_num",
    "explorer.rollout_model.dtype",
    "explorer.rollout_model.gpu_memory_utilization",
    "explorer.rollout_model.enable_sleep_mode",
    "trainer.precision",
    "trainer.trainer_strategy",
    "trainer.gradient_checkpointing",
    "trainer.max_token_len_per_gpu",
    "synchronizer.sync_method",
)
_UNKNOWN = (
    "memory is not computed: the model's config.json is not there, or its shape is none that is "
    "planned (a decoder without latent attention)"
)
_COPIES = {  # by synchronizer.copy_on_disk
    True: "a file, and a bucket or two in CPU memory",
    False: "CPU memory",
    None: "CPU memory, or in a file if the copy is larger than an eighth of the free memory",
}


def plan(  # noqa: PLR0913, PLR0917 -- the options of a command
    file: File,
    gpus: Gpus = None,
    gpu_memory: GpuMemory = 80.0,
    local: Local = False,
    tflops: Tflops = None,
    tokens_per_s: TokensPerS = None,
    settings: Settings = None,
    simulate: Simulate = False,
    record: Record = None,
    times: Times = None,
    train_gpus: TrainGpus = None,
    shared: Shared = 1.0,
    steps: Steps = 40,
    max_off_policy: MaxOffPolicy = 2,
) -> None:
    """Show memory and time of a run on each GPU, and its defaults for them; start nothing.

    Reads the model's config.json, and downloads it if it is missing and the model is not known by
    its name, or prints within ten seconds why it cannot; needs no weights and no GPU.
    Exit code 1: it does not fit.
    """
    from trinity.common.config import check, load_config
    from trinity.common.config.parts import NamedParts
    from trinity.common.config.preparation import run_manager, stages_on
    from trinity.common.config.problem import listed

    from trinity_debug.simulated_stage import Asked, simulated_stage

    if not simulate and (record is not None or times):
        raise typer.BadParameter("--record and --time are for --simulate. Add it.")
    config = load_config(file, overrides=settings or ())
    parts, stages = NamedParts(run_manager(config)), []
    whole = _machine(config, gpus, gpu_memory)
    for stage, machine in stages_on(config, whole, manager=parts.manager, local=local):
        found = check(stage, machine, manager=parts.manager)
        stages.append((stage, machine, [one for one in found if one.severity != "notice"]))
        typer.echo(f"{stage.name}, on {_words(machine, stage)}:")
        times_s = _of_time(stage, machine, parts, tflops, tokens_per_s)
        for line in [*_lines(stage, machine, parts), *times_s]:
            typer.echo(f"  {line}")
    problems = dict.fromkeys(line for *_, found in stages for line in listed(found))
    for line in problems:
        typer.echo(line)
    asked = Asked(
        local=local,
        record=record,
        times=times or [],
        train_gpus=train_gpus,
        shared=shared,
        steps=steps,
        max_off_policy=max_off_policy,
        tflops=tflops,
        tokens_per_s=tokens_per_s,
    )
    for stage, machine, found in stages if simulate else []:
        typer.echo(f"{stage.name}:")
        typer.echo("\n".join(simulated_stage(stage, machine, parts, asked, problems=found)))
    raise typer.Exit(int(bool(problems)))


def _machine(config: Config, gpus: int | None, gpu_memory: float) -> Machine:
    """Return this machine, or one with the GPUs that are asked for."""
    from trinity.common.config import probe

    from trinity_debug.hub_wait import fetch_for_seconds

    if why := fetch_for_seconds(config.model):
        typer.echo(f"the model's config.json is not there: {why}", err=True)
    found = probe(model_path=config.model.model_path)
    if gpus is None:
        return found
    size = int(gpu_memory * 1e9) if gpus else None
    return replace(found, num_gpus=gpus, gpu_bytes=size, has_bf16=True)


def _of_time(
    stage: Config,
    machine: Machine,
    parts: NamedParts,
    tflops: float | None,
    tokens_per_s: float | None,
) -> list[str]:
    from trinity.common.config.resolve_gpus import num_gpus, shares_gpu, trainer_memory

    from trinity_debug.plan_time import colocated_lines, time_lines

    plan = trainer_memory(stage, machine, parts)
    if plan is None or not machine.num_gpus:
        return []
    lines = colocated_lines(
        stage,
        plan,
        gpu_bytes=machine.gpu_bytes,
        num_gpus=num_gpus(stage, machine),
        may_shard=not stage.source.where("trainer.trainer_strategy"),
    )
    return lines + time_lines(
        stage,
        plan,
        tflops=tflops,
        tokens_per_s=tokens_per_s,
        is_shared=shares_gpu(stage, machine),
    )


def _words(machine: Machine, stage: Config) -> str:
    if machine.num_gpus == 0:
        return f"{machine.num_cores} CPU cores, without GPUs"
    nodes = stage.cluster.node_num
    each = f"{machine.num_gpus} GPU{'s'[: machine.num_gpus > 1]}"
    size = f" of {machine.gpu_bytes / 1e9:.0f} GB" if machine.gpu_bytes else ""
    return f"{nodes} machines with {each}{size} each" if nodes > 1 else f"{each}{size}"


def _lines(stage: Config, machine: Machine, parts: NamedParts) -> list[str]:
    from trinity.common.config.resolve_gpus import plan_lines

    lines = plan_lines(stage, machine, parts)
    if lines and machine.model is not None and stage.mode != "train":
        lines.append(_of_sync(stage, machine.model))
    if not stage.has_trainer:
        lines = _of_engines(stage, machine)
    elif machine.num_gpus and not lines:
        lines = [f"{_UNKNOWN}, or that of its critic's model is not known"]
    values = {path: (value, stage.origins[path]) for path, value in stage.flat().items()}
    shown = [(path, *values[path]) for path in _FOLLOWS_GPUS if path in values]
    return lines + [f"{path} = {value!r}  # {origin}" for path, value, origin in shown]


def _of_engines(stage: Config, machine: Machine) -> list[str]:
    """Return what engines need where nothing is trained."""
    from trinity.common.config.memory import cache_tokens, engine_bytes

    if not machine.num_gpus or stage.model.external_model.enable:
        return []
    if machine.model is None or machine.gpu_bytes is None:
        return [_UNKNOWN]
    rollout = stage.explorer.rollout_model
    width, dtype = rollout.tensor_parallel_size, rollout.dtype or stage.trainer.precision
    weights = engine_bytes(machine.model, dtype=dtype, width=width)
    room = rollout.gpu_memory_utilization * machine.gpu_bytes - weights
    tokens = cache_tokens(machine.model, room, dtype=dtype, width=width)
    engines = f"{rollout.engine_num} engines, each" if rollout.engine_num > 1 else "engine"
    return [
        f"{engines} on {width} GPU{'s'[: width > 1]} ({dtype}): {weights / 1e9:.1f} GB of weights, "
        f"cache for {tokens:,} tokens"
    ]


def _of_sync(stage: Config, shape: ModelShape) -> str:
    from trinity.common.config.memory import engine_bytes

    rollout, method = stage.explorer.rollout_model, stage.synchronizer.sync_method
    size = engine_bytes(shape, dtype=rollout.dtype or "float32") / 1e9
    bucket = min(size, (rollout.weight_sync_buffer_size << 20) / 1e9)
    copy = _COPIES[stage.synchronizer.copy_on_disk]
    host = f" in buckets of {bucket:.1f} GB; the trainer's first rank keeps a copy in {copy}"
    where = {"nccl": host, "gloo": f"{host}; CPU memory of an engine: a bucket or two"}
    return f"weight sync ({method}): {size:.1f} GB{where.get(method, '')}"
