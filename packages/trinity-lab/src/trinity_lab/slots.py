"""How many runs a machine or a cluster can take at a time, and what each of them may use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trinity.common.config import probe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.config import Config

_CORES_OF_RAY = 4  # of a run that starts a Ray of its own: driver, trainer, engine, runner


def slots_for(config: Config, *, is_local: bool, num: int = 0) -> list[Mapping[str, str]]:
    """Return the environment of each run that may go on at a time.

    Args:
        config: of the runs.
        is_local: whether each run is one process.
        num: so many; 0: as many as the GPUs, else the cores, allow.
    """
    address = "" if is_local else os.environ.get("RAY_ADDRESS", "") or _address(config)
    if address:
        return [{}] * (num or _in_cluster(config, address))
    machine = probe()
    needed = 1 if is_local else gpus_of(config)
    if machine.num_gpus >= needed:
        groups = [range(n, n + needed) for n in range(0, machine.num_gpus - needed + 1, needed)]
        count = num or len(groups)
        return [_on_gpus(groups[n % len(groups)]) for n in range(count)]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else machine.num_cores
    count = num or max(1, cores if is_local else cores // _CORES_OF_RAY)
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // count))
    return [{"OMP_NUM_THREADS": threads}] * count


def gpus_of(config: Config) -> int:
    """Return the GPUs of a run over Ray: of its engines, and of the ranks of its trainer."""
    rollout = config.explorer.rollout_model
    engines = max(1, rollout.engine_num or 1) * max(1, rollout.tensor_parallel_size or 1)
    return engines + (max(1, config.trainer.num_ranks) if config.has_trainer else 0)


def _address(config: Config) -> str:
    return "" if config.cluster.ray_address in {"auto", "local"} else config.cluster.ray_address


def _in_cluster(config: Config, address: str) -> int:
    """Return how many runs the cluster can hold."""
    import ray

    was_joined = ray.is_initialized()
    if not was_joined:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    try:
        resources = ray.cluster_resources()
    finally:
        if not was_joined:
            ray.shutdown()
    gpus, cores = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
    return max(1, gpus // gpus_of(config) if gpus else cores // _CORES_OF_RAY)


def _on_gpus(numbers: range) -> dict[str, str]:
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = seen.split(",") if seen else [str(number) for number in range(numbers.stop)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[number] for number in numbers)}
