"""Divide the cluster's GPUs between the trainer and the engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError

if TYPE_CHECKING:
    from trinity.common.config import Config

__all__ = ["GpuShares", "gpu_shares", "shares_of"]


@dataclass(frozen=True, slots=True)
class GpuShares:
    """What each room asks Ray for."""

    trainer: float
    engine: float  # each of them


def gpu_shares(config: Config) -> GpuShares:
    """Return the shares in the cluster that this process is connected to.

    Raises:
        ConfigError: engines of several GPUs need more than there are.
    """
    import ray

    rollout = config.explorer.rollout_model
    resources: Any = ray.cluster_resources  # untyped
    return shares_of(
        int(resources().get("GPU", 0)),
        trains=config.mode in {"both", "train"},
        num_engines=0 if config.mode == "train" else max(1, rollout.engine_num),
        gpus_of_engine=rollout.tensor_parallel_size,
    )


def shares_of(
    num_gpus: int, *, trains: bool, num_engines: int, gpus_of_engine: int = 1
) -> GpuShares:
    """Return whole GPUs where there are enough, else equal parts, rounded down to 1/100.

    An engine that spreads over several GPUs shares none of them.

    Raises:
        ConfigError: there are too few for such engines.

    >>> shares_of(2, trains=True, num_engines=1)
    GpuShares(trainer=1.0, engine=1.0)
    >>> shares_of(1, trains=True, num_engines=2)
    GpuShares(trainer=0.33, engine=0.33)
    >>> shares_of(0, trains=True, num_engines=1)
    GpuShares(trainer=0.0, engine=0.0)
    >>> shares_of(2, trains=True, num_engines=2)
    GpuShares(trainer=1.0, engine=0.5)
    >>> shares_of(8, trains=True, num_engines=2, gpus_of_engine=2)
    GpuShares(trainer=1.0, engine=2.0)
    """
    if num_gpus == 0:
        return GpuShares(0.0, 0.0)
    if gpus_of_engine > 1 and num_engines:
        return _whole_shares(num_gpus, int(trains), num_engines, gpus_of_engine)
    num_rooms = num_engines + int(trains)
    if num_gpus == 1 or num_engines == 0:
        share = _part(1, num_rooms)
        return GpuShares(share, share)
    return GpuShares(1.0, _part(num_gpus - int(trains), num_engines))


def _whole_shares(
    num_gpus: int, num_trainers: int, num_engines: int, gpus_of_engine: int
) -> GpuShares:
    wanted = num_engines * gpus_of_engine + num_trainers
    if wanted > num_gpus:
        raise ConfigError(
            f"explorer.rollout_model asks for {num_engines} engines of {gpus_of_engine} GPUs"
            f"{' beside a trainer' if num_trainers else ''}, {wanted} GPUs in all; the cluster has "
            f"{num_gpus}. Lower engine_num or tensor_parallel_size."
        )
    return GpuShares(float(num_trainers), float(gpus_of_engine))


def _part(num_gpus: int, num_rooms: int) -> float:
    """Return a part that so many rooms can have; Ray gives whole GPUs or parts of one."""
    per_gpu = -(-num_rooms // num_gpus)
    return 1.0 if per_gpu <= 1 else int(100 / per_gpu) / 100
