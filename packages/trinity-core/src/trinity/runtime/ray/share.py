"""Divide the cluster's GPUs between the trainer and the engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trinity.common.config import Config

__all__ = ["GpuShares", "gpu_shares", "shares_of"]


@dataclass(frozen=True, slots=True)
class GpuShares:
    """What each room asks Ray for."""

    trainer: float
    engine: float  # each of them


def gpu_shares(config: Config) -> GpuShares:
    """Return the shares in the cluster that this process is connected to."""
    import ray

    resources: Any = ray.cluster_resources  # untyped
    return shares_of(
        int(resources().get("GPU", 0)),
        trains=config.mode in {"both", "train"},
        num_engines=0
        if config.mode == "train"
        else max(1, config.explorer.rollout_model.engine_num),
    )


def shares_of(num_gpus: int, *, trains: bool, num_engines: int) -> GpuShares:
    """Return whole GPUs where there are enough, else equal parts, rounded down to 1/100.

    >>> shares_of(2, trains=True, num_engines=1)
    GpuShares(trainer=1.0, engine=1.0)
    >>> shares_of(1, trains=True, num_engines=2)
    GpuShares(trainer=0.33, engine=0.33)
    >>> shares_of(0, trains=True, num_engines=1)
    GpuShares(trainer=0.0, engine=0.0)
    >>> shares_of(2, trains=True, num_engines=2)
    GpuShares(trainer=1.0, engine=0.5)
    """
    if num_gpus == 0:
        return GpuShares(0.0, 0.0)
    num_rooms = num_engines + int(trains)
    if num_gpus == 1 or num_engines == 0:
        share = _part(1, num_rooms)
        return GpuShares(share, share)
    return GpuShares(1.0, _part(num_gpus - int(trains), num_engines))


def _part(num_gpus: int, num_rooms: int) -> float:
    """Return a part that so many rooms can have; Ray gives whole GPUs or parts of one."""
    per_gpu = -(-num_rooms // num_gpus)
    return 1.0 if per_gpu <= 1 else int(100 / per_gpu) / 100
