"""Settings that follow the machine; each change is a note: requested X, found Y, using Z."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.resolve_gpus import default_sync_method, resolve_gpus

if TYPE_CHECKING:
    from trinity.common.config.resolve import Resolution

_ENGINE = "explorer.rollout_model"
_SLEEPS = f"{_ENGINE}.enable_sleep_mode"
_WIDTH = f"{_ENGINE}.tensor_parallel_size"
_ULYSSES = "trainer.ulysses_sequence_parallel_size"
_HALF_PRECISION = {"bfloat16", "float16"}


def resolve_machine(work: Resolution) -> None:
    """Fill in trainer, engine, number formats and sync method for this machine."""
    _resolve_trainer(work)
    _resolve_engine(work)
    if work.config.mode == "colocate":
        _resolve_colocation(work)
    _keep_others_awake(work)
    _resolve_special_models(work)
    if work.machine.num_gpus == 0:
        _run_without_gpus(work)
    else:
        resolve_gpus(work)
    _resolve_precision(work)
    _resolve_sync(work)


def _resolve_special_models(work: Resolution) -> None:
    """Fill in who trains and samples a model behind a service, or one with several adapters."""
    if work.config.model.tinker.enable:
        for path in ("trainer.trainer_type", f"{_ENGINE}.engine_type"):
            work.fill(path, "tinker", origin="model.tinker.enable")
    elif work.config.model.external_model.enable:
        origin = "model.external_model.enable"
        work.fill(f"{_ENGINE}.engine_type", "external", origin=origin)
        api = work.config.model.external_model.model_copy()
        work.fill(f"{_ENGINE}.external_model_config", api, origin=origin)
    elif work.config.model.adapters:
        for path, plain in (
            ("trainer.trainer_type", "torch"),
            (f"{_ENGINE}.engine_type", "transformers"),
        ):
            if not work.asked(path) or work.value(path) == plain:  # else it is refused later
                work.fill(path, "multi_lora", origin="model.lora_configs")


def _resolve_trainer(work: Resolution) -> None:
    if work.config.trainer.trainer_type == "verl":
        if work.asked("trainer.trainer_type"):
            work.note("requested trainer.trainer_type verl, using Trinity's own trainer torch")
        work.fill("trainer.trainer_type", "torch", origin="the only trainer")


def _resolve_engine(work: Resolution) -> None:
    path = f"{_ENGINE}.engine_type"
    engine = work.parts.default_engine(num_gpus=work.machine.num_gpus)
    if engine is None:
        return
    missing = work.parts.not_installed("rollout_engine", work.value(path))
    if missing and work.machine.num_gpus == 0:
        asked = work.value(path)
        work.note(f"requested {path} {asked}, found no GPU and no {missing}, using {engine}")
        work.fill(path, engine, origin="machine")
    work.default(path, engine, origin="machine")


def _resolve_colocation(work: Resolution) -> None:
    """Let mode colocate be mode both with engines that sleep, where there are GPUs to share."""
    work.fill("mode", "both", origin="mode colocate")
    has_gpus = work.machine.num_gpus > 0
    work.default(_SLEEPS, has_gpus, origin="mode")
    if not (has_gpus and work.value(_SLEEPS)):
        found = f"{work.config.source.written(_SLEEPS)} false" if has_gpus else "no GPU"
        work.note(f"requested mode colocate, found {found}, using mode both")
        work.fill(_SLEEPS, value=False, origin="machine")


def _keep_others_awake(work: Resolution) -> None:
    """Take back that engines sleep which no trainer of this run takes turns with."""
    num_models = len(work.config.explorer.auxiliary_models)
    others = [f"explorer.auxiliary_models.{n}.enable_sleep_mode" for n in range(num_models)]
    for path in [_SLEEPS] * (work.config.mode != "both") + others:
        if work.value(path):
            work.note(f"not used in this run, read only by {_ENGINE} in mode both: {path}")
            work.fill(path, value=False, origin="mode")


def _run_without_gpus(work: Resolution) -> None:
    spreads = work.parts.spreads(work.value(f"{_ENGINE}.engine_type"))
    asks_for_gpus = work.value("cluster.gpu_per_node") > 0
    is_for_gpus = asks_for_gpus or (work.value(_WIDTH) > 1 and not spreads)
    # Who asks for engines alone gets them: each has a process of its own over Ray.
    num_engines = 1 if is_for_gpus else work.value(f"{_ENGINE}.engine_num")
    wanted = {
        "cluster.node_num": 1,
        "cluster.gpu_per_node": 0,
        f"{_ENGINE}.engine_num": num_engines,
        _WIDTH: 1 if is_for_gpus else work.value(_WIDTH),
    }
    beyond = [path for path, have in wanted.items() if work.value(path) > have]
    beyond = [path for path in beyond if path != "cluster.node_num"] or beyond
    for path, have in wanted.items():
        if work.value(path) != have:
            work.fill(path, have, origin="machine")
    if beyond:
        work.note(
            f"requested GPUs ({', '.join(beyond)}), found none, using "
            f"{_engines(work, spreads=spreads)} and one trainer on the CPU"
        )
    if work.value(_ULYSSES) > 1 and work.value("trainer.num_ranks") < 2:
        work.note(f"requested {_ULYSSES} {work.value(_ULYSSES)}, found no GPU, using 1")
        work.fill(_ULYSSES, 1, origin="machine")


def _engines(work: Resolution, *, spreads: bool) -> str:
    """Return how many engines there are, in words."""
    num, width = work.value(f"{_ENGINE}.engine_num"), work.value(_WIDTH)
    processes = f" of {width} processes each" if width > 1 else ""
    kind = "engine" if spreads or num > 1 else "embedded engine"
    return f"one {kind}{processes}" if num == 1 else f"{num} {kind}s{processes}"


def _resolve_precision(work: Resolution) -> None:
    if work.value(f"{_ENGINE}.dtype") == "auto":
        work.fill(f"{_ENGINE}.dtype", None, origin="default")
    if work.config.trainer.precision == "bfloat16":
        _without_half_precision(work, "trainer.precision")
    work.default(f"{_ENGINE}.dtype", work.config.trainer.precision, origin="trainer.precision")
    if work.value(f"{_ENGINE}.dtype") in _HALF_PRECISION:
        _without_half_precision(work, f"{_ENGINE}.dtype")


def _without_half_precision(work: Resolution, path: str) -> None:
    asked = work.value(path)
    if work.machine.has_bf16 and (asked == "bfloat16" or work.machine.num_gpus > 0):
        return
    work.note(f"requested {path} {asked}, slow or not supported on this machine, using float32")
    work.fill(path, "float32", origin="machine")


def _resolve_sync(work: Resolution) -> None:
    method = work.config.synchronizer.sync_method
    if work.config.is_standalone:
        if work.asked("synchronizer.sync_method") and method != "checkpoint":
            work.note(
                f"requested synchronizer.sync_method {method}, found standalone runs, using "
                f"checkpoint"
            )
        work.fill("synchronizer.sync_method", "checkpoint", origin="mode")
        return
    if method not in {"nccl", "checkpoint"}:
        return
    is_asked = work.asked("synchronizer.sync_method")
    has_gpus = work.machine.num_gpus > 0 or method == "checkpoint"
    if is_asked and has_gpus and work.parts.find("sync_method", method) is not None:
        return
    found = default_sync_method(work.config, work.machine)
    if is_asked and work.config.mode == "both":
        have = "one process" if has_gpus else "no GPU"
        found = "memory"
        work.note(f"requested synchronizer.sync_method {method}, found {have}, using memory")
    work.fill("synchronizer.sync_method", found, origin="machine")
