"""What a run holds in the cluster: placement groups, made for its workers and removed with them.

Ray removes a group whose driver died, ``kill -9`` included. It takes a moment, in which its GPUs
look as if somebody had them: who counts what is free waits for that, else there are fewer ranks.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import ray

from trinity.errors import ConfigError, WorkerLostError
from trinity.runtime.assembly import sync_method_can
from trinity.runtime.ray.gpu_allocation import Host, short_of
from trinity.runtime.ray.ray_processes import check_ray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.config import Config
    from trinity.extend import PluginManager
    from trinity.runtime.ray.gpu_allocation import Group
    from trinity.runtime.ray.worker import WorkerFacts

_SENDERS = ("trainer", "trainer-0")


def check_machines(config: Config, manager: PluginManager, *, facts: Sequence[WorkerFacts]) -> None:
    """Compare where the trainer's process and the engines' are, by the facts of all workers.

    Raises:
        ConfigError: an engine is elsewhere, and the sync method reaches it nowhere else.
    """
    sender = next((worker for worker in facts if worker.name in _SENDERS), None)
    if sender is None or not sync_method_can(config, manager, "one_machine"):
        return
    engines = [worker for worker in facts if worker.name.startswith("engine-")]
    elsewhere = [one for one in engines if one.machine != sender.machine]
    method = f"synchronizer.sync_method {config.synchronizer.sync_method} shares memory"
    others = "Set memory, gloo or nccl"
    if not sender.machine:
        raise ConfigError(
            f"{method}, and {sender.host}, where {sender.name} is, has none that nobody can change "
            f"(Linux has it). {others}."
        )
    if elsewhere:
        first = elsewhere[0]
        where = "sees other processes there (another container)"
        if first.host != sender.host:
            where = f"is on {first.host}"
        more = f"; {len(elsewhere)} engines are such" if len(elsewhere) > 1 else ""
        raise ConfigError(
            f"{method}: {sender.name} is on {sender.host}, and {first.name} {where}{more}. "
            f"{others}, or put all of them on one machine."
        )


logger = logging.getLogger(__name__)

OURS = "trinity-"  # how the names of all groups begin
ENDED_S = 10.0  # for Ray to remove the groups of a run that ended
RETURNED_S = 2.0  # until the head knows that the GPUs of a group that it removed are free
LOOK_S = 0.1  # between two looks
_CREATED, _REMOVED = "CREATED", "REMOVED"
_JOB_DIGITS = 8  # at the end of a group's id


def hosts_of_cluster() -> list[Host]:
    """Return the machines of the cluster that this process is connected to."""
    from ray._private import state

    told: Any = state  # untyped
    free: Mapping[str, Mapping[str, float]] = told.available_resources_per_node()
    nodes: Sequence[Mapping[str, Any]] = told.nodes()
    here = ray.get_runtime_context().get_node_id()
    return [
        Host(
            *(
                int(held.get(kind, 0))
                for kind in ("GPU", "CPU")
                for held in (node["Resources"], free.get(node["NodeID"], {}))
            ),
            is_here=node["NodeID"] == here,
        )
        for node in nodes
        if node["Alive"]
    ]


class Placement:
    """The groups of one stage.

    Args:
        groups: what is reserved; Ray does it while workers are started.
        namespace: of the run: names in the cluster begin with it.
    """

    def __init__(self, groups: Sequence[Group] = (), *, namespace: str = OURS) -> None:
        make: Any = ray.util.placement_group  # half typed
        self._groups = [
            (group, make(list(group.bundles), group.strategy, f"{namespace}/{group.name}"))
            for group in groups
        ]

    def options(self, worker: str) -> dict[str, Any]:
        """Return the options of the actor that place a worker; empty: anywhere."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        for group, made in self._groups:
            if worker in group.places:
                place: Any = PlacementGroupSchedulingStrategy(made, group.places[worker])
                return {"scheduling_strategy": place}
        return {}

    def lack(self) -> str:
        """Return what the run waits for, and what can be done; empty: it has its places.

        Raises:
            WorkerLostError: a machine is gone that it would need; on what is left, others may fit.
        """
        waiting = [group for group, made in self._groups if _state(made) != _CREATED]
        if not waiting:
            return ""
        hosts = hosts_of_cluster()
        for group in waiting:
            if short_of([group], hosts=hosts):
                cause = _gone_line(group, hosts=hosts)
                raise WorkerLostError(next(iter(group.places)), cause=cause)
        return lack_line(waiting, hosts=hosts)

    def close(self) -> None:
        """Remove all groups, and whatever process is left in them; safe to call twice."""
        groups, self._groups = self._groups, []
        bundles = [bundle for group, _ in groups for bundle in group.bundles]
        num_held = sum(int(one.get("GPU", 0)) + int(one.get("CPU", 0)) for one in bundles)
        free = _num_free() if num_held else 0
        remove: Any = ray.util.remove_placement_group
        for _, made in groups:
            remove(made)
        if num_held:
            _await_free(free + num_held)


def lack_line(waiting: Sequence[Group], *, hosts: Sequence[Host]) -> str:
    """Return what groups ask for that the machines do not have free."""
    kind = short_of(waiting, hosts=hosts, is_free=True) or "GPU"
    asked = _asked(waiting, kind)
    if not asked:
        return (
            "the run waits for places on several machines: none has memory left that Ray may give. "
            "ray status says who has it; the run goes on once others end."
        )
    have = " + ".join("{} ({} free)".format(*host.counts(kind)) for host in hosts)
    size = ", tensor_parallel_size" if kind == "GPU" else ""
    return (
        f"the run waits for {kind}s. It asks for {asked}, each number on one machine; the "
        f"cluster's machines have {have}. It goes on once others end: ray status says who has "
        f"them. Or stop it, and lower explorer.rollout_model.engine_num{size} or trainer.num_ranks."
    )


def _gone_line(group: Group, *, hosts: Sequence[Host]) -> str:
    kind = short_of([group], hosts=hosts)
    have = " + ".join(str(host.counts(kind)[0]) for host in hosts) or "none"
    return (
        f"a machine is gone: {_asked([group], kind)} {kind}s were counted, each number on one "
        f"machine, and the machines that are left have {have}"
    )


def _asked(groups: Sequence[Group], kind: str) -> str:
    bundles = [bundle for group in groups for bundle in group.bundles]
    return " + ".join(f"{bundle[kind]:g}" for bundle in bundles if kind in bundle)


def remove_groups(namespace: str) -> None:
    """Remove what a run's workers reserved and nobody has removed: its Ray may be there for long.

    Args:
        namespace: of the run.
    """
    from ray._raylet import PlacementGroupID
    from ray.util.placement_group import PlacementGroup

    remove: Any = ray.util.remove_placement_group
    table: Mapping[str, Mapping[str, Any]] = ray.util.placement_group_table()
    for number, group in table.items():
        if group["state"] != _REMOVED and str(group["name"]).startswith(f"{namespace}/"):
            remove(PlacementGroup(PlacementGroupID(bytes.fromhex(number))))


def await_ended_groups(namespace: str) -> None:
    """Return once no group is left of a run that ended, or of this one's workers before.

    Args:
        namespace: of this run.
    """
    left = _ended_groups(namespace)
    if not left:
        return
    deadline = time.monotonic() + ENDED_S
    while left and time.monotonic() < deadline:
        check_ray()
        time.sleep(LOOK_S)
        left = _ended_groups(namespace)
    if left:
        logger.warning("Ray has not removed %s: ray status says who has what", ", ".join(left))
    time.sleep(RETURNED_S)


def _await_free(count: int) -> None:
    """Return once so many are free, as far as the head knows, or after a moment."""
    deadline = time.monotonic() + RETURNED_S
    while _num_free() < count and time.monotonic() < deadline:
        time.sleep(LOOK_S)


def _num_free() -> int:
    return sum(host.free + host.free_cpus for host in hosts_of_cluster())


def _ended_groups(namespace: str) -> list[str]:
    """Return the names of groups that nobody needs any more and that are still there."""
    table: Mapping[str, Mapping[str, Any]] = ray.util.placement_group_table()
    there = [
        (str(group["name"]), str(group["placement_group_id"])[-_JOB_DIGITS:])
        for group in table.values()
        if group["state"] != _REMOVED and str(group["name"]).startswith(OURS)
    ]
    if not there:
        return []
    ended = _ended_jobs()
    return [name for name, job in there if name.startswith(namespace) or job in ended]


def _ended_jobs() -> set[str]:
    from ray._private import state

    told: Any = state  # untyped
    found: Sequence[Mapping[str, Any]] = told.jobs()
    return {str(job["JobID"]) for job in found if job["IsDead"]}


def _state(made: Any) -> str:
    table: Mapping[str, Any] = ray.util.placement_group_table(made)
    return str(table["state"])
