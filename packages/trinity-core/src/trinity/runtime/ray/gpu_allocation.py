"""Which workers stand together on one machine, and how GPUs are divided between them.

An engine has its GPUs on one machine, and its runner beside it. The trainer's ranks have the rest:
on one machine if they fit there, else on whole machines. Without GPUs both are spread, or all are
together where weights are shared on one machine.

In a Ray that others use too, an engine and a rank reserve a CPU each, where they stand. A runner
reserves none: it waits for its engine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trinity.common.config.resolve_gpus import gpus_left, left_by_engines
from trinity.errors import ConfigError
from trinity.extend.kinds import KINDS
from trinity.runtime.assembly import sync_method_can

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.config import Config, Machine
    from trinity.extend import PluginManager

_ALMOST = 1e-9  # parts of a GPU add up to it inexactly
_ANY = {"memory": 1.0}  # a byte, which every machine has: a bundle asks for something


@dataclass(frozen=True, slots=True)
class Host:
    """Whole GPUs and CPUs of one machine of the cluster."""

    total: int
    free: int  # held by nobody
    cpus: int = 0
    free_cpus: int = 0
    is_here: bool = field(default=False, kw_only=True)  # this process is on it

    def counts(self, kind: str) -> tuple[int, int]:
        """Return how many it has of a kind, CPU or GPU, and how many are free."""
        return (self.cpus, self.free_cpus) if kind == "CPU" else (self.total, self.free)


@dataclass(frozen=True, slots=True)
class Group:
    """Bundles that are reserved together, each on one machine."""

    name: str
    strategy: str  # Ray's word for how its bundles lie to each other
    bundles: tuple[Mapping[str, float], ...]
    places: Mapping[str, int] = field(default_factory=dict)  # by the worker's name


def ranks_left(hosts: Sequence[Host], *, own: int, width: int, others: int = 0) -> int:
    """Return how many ranks the trainer has if nobody says it: as `gpus_left` counts.

    ``own`` engines of this run have ``width`` GPUs each, and so have the ``others`` of its
    explorers, which are started by themselves and may have begun.
    """
    totals = [host.total for host in hosts]
    free = gpus_left([host.free for host in hosts], totals, num=own, width=width)
    total = gpus_left(totals, totals, num=own + others, width=width)
    return max(1, min(free, total))


def groups_for(
    hosts: Sequence[Host],
    *,
    engine: float,
    num_engines: int,
    trainer: float,
    num_ranks: int,
    is_together: bool = False,
) -> list[Group]:
    """Return what is reserved before the workers start; empty: they may stand anywhere.

    Each of ``num_engines`` has ``engine`` GPUs, each rank ``trainer``; 0 ranks: nobody trains.
    ``is_together``: trainer and engines have to be on one machine; GPUs come first.

    Raises:
        ConfigError: the machines have as many GPUs, but not together.
    """
    if engine or trainer:
        widths = _widths(hosts, engine=engine, num_engines=num_engines, ranks=num_ranks)
        sizes = [width * trainer for width in widths] if num_ranks else []
        bundles = [{"GPU": engine}] * num_engines + [{"GPU": size} for size in sizes]
        places = _engines(num_engines, num_engines) | _ranks(widths, first=num_engines)
        return [Group("workers", "PACK", tuple(bundles), places)] if bundles else []
    if is_together and num_engines and num_ranks and len(hosts) > 1:
        places = _engines(num_engines, 1) | _ranks([num_ranks])
        return [Group("workers", "STRICT_PACK", (_ANY,), places)]
    groups = []
    num_bundles = min(num_engines, len(hosts))
    if num_bundles > 1:
        places = _engines(num_engines, num_bundles)
        groups.append(Group("engines", "SPREAD", (_ANY,) * num_bundles, places))
    num_bundles = min(num_ranks, len(hosts))
    if num_bundles > 1:
        widths = [len(range(n, num_ranks, num_bundles)) for n in range(num_bundles)]
        groups.append(Group("trainer", "SPREAD", (_ANY,) * num_bundles, _ranks(widths)))
    return groups


def short_of(groups: Sequence[Group], *, hosts: Sequence[Host], is_free: bool = False) -> str:
    """Return of what machines certainly have too few for these bundles, CPU or GPU; "": of none.

    Counted is what there is, or with ``is_free`` what of it nobody holds.
    """
    for kind in ("CPU", "GPU"):
        counts = [host.counts(kind)[is_free] for host in hosts]
        sizes = [bundle[kind] for group in groups for bundle in group.bundles if bundle.get(kind)]
        if sum(sizes) > sum(counts) + _ALMOST or any(
            sum(other >= size for other in sizes) > sum(int(n / size + _ALMOST) for n in counts)
            for size in set(sizes)
        ):
            return kind
    return ""


def with_cpus(groups: Sequence[Group], *, num_engines: int, num_ranks: int) -> list[Group]:
    """Return the groups with a CPU for each engine and rank, in its bundle if it has one."""
    alone = _engines(num_engines, max(1, num_engines)) | _ranks([1] * num_ranks, first=num_engines)
    found = []
    for group in groups:
        held = Counter(n for worker, n in group.places.items() if not worker.startswith("runner-"))
        bundles = [{**bundle, "CPU": float(held[n])} for n, bundle in enumerate(group.bundles)]
        found.append(replace(group, bundles=tuple(bundles)))
        alone = {worker: n for worker, n in alone.items() if worker not in group.places}
    numbers = list(dict.fromkeys(alone.values()))
    places = {worker: numbers.index(n) for worker, n in alone.items()}
    rest = Group("cpus", "PACK", ({"CPU": 1.0},) * len(numbers), places)
    return [*found, rest] if numbers else found


def _widths(hosts: Sequence[Host], *, engine: float, num_engines: int, ranks: int) -> list[int]:
    """Return how many ranks stand together, machine by machine.

    Raises:
        ConfigError: an engine's GPUs are not on one machine.
    """
    width = int(engine)  # 0: engines share a GPU, which some machine has
    num = num_engines if width else 0
    totals = [host.total for host in hosts]
    after_all = left_by_engines(totals, num=num, width=width)
    if after_all is None:
        raise ConfigError(_no_machine_fits(totals, num=num, width=width))
    if ranks <= 1:
        return [ranks] if ranks else []
    free = left_by_engines([host.free for host in hosts], num=num, width=width)
    left = free if free is not None and sum(free) >= ranks else after_all  # else it waits for them
    if max(left) >= ranks:
        return [ranks]
    widths: list[int] = []
    for count in sorted(left, reverse=True):
        here = min(count, ranks - sum(widths))
        widths += [here] if here else []
    return widths


def _no_machine_fits(totals: Sequence[int], *, num: int, width: int) -> str:
    have = " + ".join(str(total) for total in sorted(totals, reverse=True))
    fitting = sum(total // width for total in totals)
    return (
        f"{num} engines x {width} GPUs of one machine each do not fit on the cluster's machines of "
        f"{have} GPUs: {fitting} do. Lower explorer.rollout_model.tensor_parallel_size or "
        "engine_num."
    )


def _engines(num: int, num_bundles: int) -> dict[str, int]:
    workers = [(worker, n) for n in range(num) for worker in (f"engine-{n}", f"runner-{n}")]
    return {worker: n % num_bundles for worker, n in workers}


def _ranks(widths: Sequence[int], *, first: int = 0) -> dict[str, int]:
    """Return where each rank stands: neighbours together, as they share sequences."""
    bundles = [first + bundle for bundle, width in enumerate(widths) for _ in range(width)]
    if len(bundles) == 1:
        return {"trainer": bundles[0]}
    return {f"trainer-{rank}": bundle for rank, bundle in enumerate(bundles)}


@dataclass(frozen=True, slots=True)
class GpuShares:
    """What each worker asks Ray for."""

    trainer: float  # each of its ranks
    engine: float  # each of them
    num_ranks: int = 1


def gpu_shares(
    config: Config, manager: PluginManager, *, hosts: Sequence[Host], has_others: bool = False
) -> tuple[GpuShares, list[Group]]:
    """Return what each worker asks for in a cluster, and what is reserved for them together.

    CPUs are reserved if the cluster ``has_others``, who may use it too.

    Raises:
        ConfigError: what is asked for needs more GPUs or CPUs than there are.
    """
    rollout = config.explorer.rollout_model
    num_engines = max(1, rollout.engine_num)
    own = 0 if config.mode == "train" else num_engines
    others = num_engines if config.mode == "train" and config.is_standalone else 0
    width = rollout.tensor_parallel_size
    has_ranks = config.has_trainer and KINDS["trainer"].can(
        manager.find("trainer", config.trainer.trainer_type), "ranks"
    )
    apart = 0 if config.is_colocated else own  # engines that have GPUs of their own
    found = ranks_left(hosts, own=apart, width=width, others=others) if has_ranks else 1
    shares = shares_of(
        sum(host.total for host in hosts),
        trains=config.mode in {"both", "train"},
        num_engines=apart,
        gpus_of_engine=width,
        num_ranks=config.trainer.num_ranks or found,
    )
    size = config.trainer.ulysses_sequence_parallel_size
    if config.has_trainer and shares.num_ranks % size:
        raise ConfigError(_no_teams(shares.num_ranks, size))
    num_ranks = shares.num_ranks if config.has_trainer else 0
    groups = groups_for(
        hosts,
        engine=shares.engine,
        num_engines=own if shares.engine == 0 else apart,
        trainer=shares.trainer,
        num_ranks=num_ranks,
        is_together=config.has_trainer and sync_method_can(config, manager, "one_machine"),
    )
    if config.is_colocated and shares.engine:
        shares, groups = GpuShares(0.5, 0.5, num_ranks), _paired(own, num_ranks)
        if short_of(groups, hosts=hosts):
            raise ConfigError(_arithmetic(sum(host.total for host in hosts), own, 1, 0))
    if has_others:
        groups = with_cpus(groups, num_engines=own, num_ranks=num_ranks)
        if short_of(groups, hosts=hosts) == "CPU":
            raise ConfigError(_no_cpus(own, num_ranks, hosts))
    return shares, groups


def _paired(num_engines: int, num_ranks: int) -> list[Group]:
    """Return a bundle of one GPU for each engine and the rank that uses it in turns with it."""
    places = _engines(num_engines, num_engines) | _ranks([1] * num_ranks)
    return [Group("workers", "PACK", ({"GPU": 1.0},) * max(num_engines, num_ranks), places)]


def _no_cpus(engines: int, ranks: int, hosts: Sequence[Host]) -> str:
    have = " + ".join(str(host.cpus) for host in hosts)
    return (
        f"the run does not fit on the Ray cluster: each engine and each rank of the trainer "
        f"reserves a CPU, {engines} + {ranks} here, and the cluster's machines have {have}. Lower "
        "explorer.rollout_model.engine_num or trainer.num_ranks, start Ray with a larger "
        "--num-cpus, or let the run start its own Ray with RAY_ADDRESS=local."
    )


def unseen_gpus(config: Config, *, hosts: Sequence[Host], machine: Machine) -> str:
    """Return a warning of GPUs of ``machine``, all that ``hosts`` have, which PyTorch cannot use.

    Raises:
        ConfigError: others of the cluster have GPUs, and the stage was resolved without any.
    """
    there, key = sum(host.total for host in hosts), "cluster.gpu_per_node"
    is_meant = config.origins.get(key) not in {None, "default", "machine"}
    auxiliary = [one.external_model_config for one in config.explorer.auxiliary_models]
    is_policy_served = config.model.tinker.enable or config.model.external_model.enable
    is_served = is_policy_served and all(one.enable for one in auxiliary)
    if not there or machine.num_gpus or is_meant or is_served:
        return ""
    count = f"{there} GPU{'s'[: there > 1]}"
    if all(host.is_here for host in hosts if host.total):
        return (
            f"warning: PyTorch cannot use this machine's {count}: defaults are those of a CPU. "
            "Install a PyTorch for GPUs, or see whether CUDA_VISIBLE_DEVICES hides them"
        )
    raise ConfigError(
        f"the cluster has {count}, and PyTorch finds none on this machine, where the run was "
        f"started: its defaults are those of a CPU. Start it where it finds some. With {key}: 0 "
        "it runs with these defaults; its workers reserve GPUs of the cluster all the same."
    )


def shares_of(
    num_gpus: int, *, trains: bool, num_engines: int, gpus_of_engine: int = 1, num_ranks: int = 1
) -> GpuShares:
    """Return whole GPUs where there are enough, else equal parts, rounded down to 1/100.

    An engine that spreads over several GPUs shares none of them, and so do several ranks; 0 ranks:
    one on each GPU that the engines leave, if it ``trains``.

    Raises:
        ConfigError: there are too few.
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


def _part(num_gpus: int, num_workers: int) -> float:
    """Return a part that so many workers can have; Ray gives whole GPUs or parts of one."""
    per_gpu = -(-num_workers // num_gpus)
    return 1.0 if per_gpu <= 1 else int(100 / per_gpu) / 100
