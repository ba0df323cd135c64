"""Divide the cluster's GPUs between the trainer's ranks and the engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.errors import ConfigError
from trinity.extend.kinds import KINDS
from trinity.runtime.assembly import needs_one_machine
from trinity.runtime.ray.bundles import groups_for, ranks_left

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.config import Config, Machine
    from trinity.extend import PluginManager
    from trinity.runtime.ray.bundles import Group, Host

_GPUS = "cluster.gpu_per_node"


@dataclass(frozen=True, slots=True)
class GpuShares:
    """What each room asks Ray for."""

    trainer: float  # each of its ranks
    engine: float  # each of them
    num_ranks: int = 1


def gpu_shares(
    config: Config, manager: PluginManager, *, hosts: Sequence[Host]
) -> tuple[GpuShares, list[Group]]:
    """Return what each room asks for in a cluster, and what is reserved for them together.

    Args:
        config: of the stage.
        manager: the plugins.
        hosts: of the cluster.

    Raises:
        ConfigError: what is asked for needs more GPUs than there are.
    """
    rollout = config.explorer.rollout_model
    num_engines = max(1, rollout.engine_num)
    own = 0 if config.mode == "train" else num_engines
    others = num_engines if config.mode == "train" and config.is_standalone else 0
    width = rollout.tensor_parallel_size
    has_ranks = _may_have_ranks(config, manager)
    found = ranks_left(hosts, own=own, width=width, others=others) if has_ranks else 1
    shares = shares_of(
        sum(host.total for host in hosts),
        trains=config.mode in {"both", "train"},
        num_engines=own,
        gpus_of_engine=width,
        num_ranks=config.trainer.num_ranks or found,
    )
    size = config.trainer.ulysses_sequence_parallel_size
    if config.has_trainer and shares.num_ranks % size:
        raise ConfigError(_no_teams(shares.num_ranks, size))
    groups = groups_for(
        hosts,
        engine=shares.engine,
        num_engines=own,
        trainer=shares.trainer,
        num_ranks=shares.num_ranks if config.has_trainer else 0,
        is_together=config.has_trainer and needs_one_machine(config, manager),
    )
    return shares, groups


def unseen_gpus(config: Config, *, hosts: Sequence[Host], machine: Machine) -> str:
    """Return what a run says that was resolved without the GPUs of its cluster; empty: it was not.

    Args:
        config: of the stage.
        hosts: of the cluster.
        machine: that the run was started on, and its configuration resolved for.
    """
    there = sum(host.total for host in hosts)
    is_meant = config.origins.get(_GPUS) not in {None, "default", "machine"}
    if not there or machine.num_gpus or is_meant:
        return ""
    count = f"{there} GPU{'s'[: there > 1]}"
    return (
        f"warning: the cluster has {count}, and this machine, where the run was started, has none: "
        f"engine, number formats and engine_num are those of a machine without GPUs. Start the run "
        f"on a machine that has GPUs; if this is meant, set {_GPUS}: 0."
    )


def _may_have_ranks(config: Config, manager: PluginManager) -> bool:
    if not config.has_trainer:
        return False
    component = manager.find("trainer", config.trainer.trainer_type)
    return "ranks" in KINDS["trainer"].abilities_of(component)


def shares_of(
    num_gpus: int, *, trains: bool, num_engines: int, gpus_of_engine: int = 1, num_ranks: int = 1
) -> GpuShares:
    """Return whole GPUs where there are enough, else equal parts, rounded down to 1/100.

    An engine that spreads over several GPUs shares none of them, and so do several ranks.

    Args:
        num_gpus: of the cluster.
        trains: whether there is a trainer.
        num_engines: how many there are.
        gpus_of_engine: that each spreads over.
        num_ranks: of the trainer; 0: one on each GPU that the engines leave.

    Raises:
        ConfigError: there are too few.

    >>> shares_of(2, trains=True, num_engines=1)
    GpuShares(trainer=1.0, engine=1.0, num_ranks=1)
    >>> shares_of(1, trains=True, num_engines=2)
    GpuShares(trainer=0.33, engine=0.33, num_ranks=1)
    >>> shares_of(0, trains=True, num_engines=1, num_ranks=2)
    GpuShares(trainer=0.0, engine=0.0, num_ranks=2)
    >>> shares_of(8, trains=True, num_engines=2, gpus_of_engine=2, num_ranks=0)
    GpuShares(trainer=1.0, engine=2.0, num_ranks=4)
    """
    if num_gpus == 0:
        return GpuShares(0.0, 0.0, max(1, num_ranks))
    left = num_gpus - num_engines * gpus_of_engine
    ranks = (num_ranks or max(1, left)) if trains else 0
    if left >= ranks:
        return GpuShares(float(bool(ranks)), float(gpus_of_engine), max(1, ranks))
    if gpus_of_engine > 1 or ranks > 1:
        raise ConfigError(_arithmetic(num_gpus, num_engines, gpus_of_engine, ranks))
    if num_gpus == 1:
        share = _part(1, num_engines + ranks)
        return GpuShares(share, share)
    return GpuShares(1.0, _part(num_gpus - ranks, num_engines))


def _arithmetic(num_gpus: int, num_engines: int, gpus_of_engine: int, ranks: int) -> str:
    engines = num_engines * gpus_of_engine
    terms = [f"{num_engines} engines x {gpus_of_engine} GPUs"] if num_engines else []
    terms += [f"{ranks} trainer rank{'s' if ranks > 1 else ''}"] if ranks else []
    return (
        f"{' + '.join(terms)} = {engines + ranks} GPUs, but the cluster has {num_gpus}. Lower "
        "explorer.rollout_model.engine_num or tensor_parallel_size, or trainer.num_ranks."
    )


def _no_teams(ranks: int, size: int) -> str:
    remedy = f"Set trainer.num_ranks to {ranks - ranks % size}" if ranks > size else "Free more"
    return (
        f"trainer.ulysses_sequence_parallel_size is {size}, and the trainer gets {ranks} "
        f"rank{'s' if ranks > 1 else ''} on the GPUs that are left, no multiple of it. "
        f"{remedy}, or set the size to 1."
    )


def _part(num_gpus: int, num_rooms: int) -> float:
    """Return a part that so many rooms can have; Ray gives whole GPUs or parts of one."""
    per_gpu = -(-num_rooms // num_gpus)
    return 1.0 if per_gpu <= 1 else int(100 / per_gpu) / 100
