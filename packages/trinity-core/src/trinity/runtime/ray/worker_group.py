"""The processes of a stage: started side by side, built before the first task, closed together."""

from __future__ import annotations

import logging
import os
import platform
import sys
import time
from typing import TYPE_CHECKING, Any

import ray

from trinity.errors import RayLostError, TrinityError, WorkerLostError
from trinity.runtime.ray.placement import Placement
from trinity.runtime.ray.ray_processes import LOOK_S, check_ray, is_ray_lost
from trinity.runtime.ray.worker import check_plugin_sets, settle, unsettle
from trinity.runtime.ray.worker_handle import FIRST_PATIENCE_S, start_worker
from trinity.runtime.supervisor import HealthMonitor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity.extend import PluginManager
    from trinity.runtime.ray.worker import WorkerFacts
    from trinity.runtime.ray.worker_handle import Pending, WorkerHandle
    from trinity.runtime.ray.worker_spec import WorkerSpec

logger = logging.getLogger(__name__)

PATIENCE_S = 300.0  # with the start of a worker, until it is said that it takes long
LACK_S = 30.0  # with them, until it is said what the cluster lacks
LONGEST_S = 1800.0  # a start may take, at least; sync_timeout where that is more
LEAST_S = 15.0  # without a heartbeat, however short sync_timeout is: a slow import is no loss
TOLD_S = 60.0  # for facts that are on their way
CLOSE_S = 5.0  # how long a worker may take to close before it is ended
_ROOMS = "trinity.runtime.ray"
_COMPUTING = ("engine-", "trainer")  # how the names of workers begin that use all cores


class WorkerGroup:
    """The processes of one stage.

    Args:
        worker_spec: of the run.
        timeout_s: within which a process that is stopped is ended; an answer that takes as long
            is told.

    Attributes:
        placement: where they stand; it is removed with them.
    """

    def __init__(self, worker_spec: WorkerSpec, *, timeout_s: float) -> None:
        self.worker_spec = worker_spec
        self.placement = Placement()
        self._timeout_s = timeout_s
        self._monitor: HealthMonitor | None = None  # None: not all are built
        self._handles: list[WorkerHandle] = []
        self._are_built = False
        self._num_threads: int | None = None  # of this process before; None: as they were

    def start(self, name: str, part: str, **options: Any) -> WorkerHandle:
        """Start one and return its handle; it is built while this returns."""
        place = self.placement.options(name)
        handle = start_worker(self.worker_spec, name, f"{_ROOMS}.{part}", place=place, **options)
        handle.patience_s = min(self._timeout_s, FIRST_PATIENCE_S)
        self._handles.append(handle)
        return handle

    def check(self, manager: PluginManager) -> Sequence[WorkerFacts]:
        """Return what each is, once all are built with the plugins that this process has.

        Raises:
            Exception: why one of them could not be; the first that is known is told.
        """
        limit_s = max(LONGEST_S, self._timeout_s)
        facts = _facts(self._handles, lack=self.placement.lack, limit_s=limit_s)
        check_plugin_sets(facts, manager=manager)
        self._are_built = True
        self._num_threads = _leave_cores(facts)
        settle()
        where = {worker.name: f"process {worker.pid} on {worker.host}" for worker in facts}
        limit_s = max(LEAST_S, self._timeout_s)
        self._monitor = HealthMonitor(self._handles, limit_s=limit_s, where=where)
        self._monitor.start()
        return facts

    def close(self) -> None:
        """Let each worker close what it holds, and end all processes; safe to call twice."""
        handles, self._handles = self._handles, []
        if self._monitor is not None:
            self._monitor.close(waits=not is_ray_lost())  # whose calls may not come back
        if self._are_built:
            unsettle()
        if self._num_threads is not None:
            sys.modules["torch"].set_num_threads(self._num_threads)
            self._num_threads = None
        if is_ray_lost() or not ray.is_initialized():  # whose workers end by themselves
            return
        if self._are_built:
            _close(handles)
        for handle in handles:
            handle.kill()
        self.placement.close()


def _facts(
    handles: Sequence[WorkerHandle], *, lack: Callable[[], str], limit_s: float = LONGEST_S
) -> list[WorkerFacts]:
    """Return each one's facts, in their order; say what they wait for where that takes long.

    Args:
        handles: of the workers.
        lack: tells what they wait for in the cluster, as long as it takes.
        limit_s: for workers that have their places.

    Raises:
        TrinityError: a worker is not built in time.
        Exception: why one of them cannot be.
    """
    asked = [handle.ask_facts() for handle in handles]
    waiting = {pending.ref: number for number, pending in enumerate(asked)}
    facts: dict[int, WorkerFacts] = {}
    began = placed = looked = time.monotonic()
    say_after_s = LACK_S
    while waiting:
        for ref in ray.wait(list(waiting), num_returns=1, timeout=LOOK_S)[0]:
            number = waiting.pop(ref)
            facts[number] = asked[number].result(timeout_s=TOLD_S)
        check_ray()
        now = time.monotonic()
        is_to_say = now - began > say_after_s
        if waiting and (is_to_say or now - looked > LACK_S or now - placed > limit_s):
            looked, line = now, lack()
            placed = now if line else placed
            names = ", ".join(handles[number].name for number in waiting.values())
            _check_time(names, waited_s=now - placed, limit_s=limit_s)
            if is_to_say:
                say_after_s = max(PATIENCE_S, 2 * say_after_s)
                _say_slow(names, line, waited_s=now - placed, limit_s=limit_s)
    return [facts[number] for number in range(len(handles))]


def _check_time(names: str, *, waited_s: float, limit_s: float) -> None:
    """Check how long workers have been built since they have their places.

    Raises:
        TrinityError: too long.
    """
    if waited_s > limit_s:
        raise TrinityError(
            f"{names}: not built {waited_s:.0f} s after the start: stopped (SIGSTOP, a debugger), "
            "hanging, or too slow. logs/NAME.log in the run directory says what each did last. The "
            "run ends them; run the same command again. Where a start takes as long, set "
            "synchronizer.sync_timeout to more seconds than that."
        )


def _say_slow(names: str, lack: str, *, waited_s: float, limit_s: float) -> None:
    """Say what workers wait for in the cluster, and after a while that they are slow."""
    if lack:
        logger.warning("%s", lack)
    if waited_s > PATIENCE_S:
        logger.warning(
            "%s: not built for %.0f s; the run gives up after %.0f s. A machine that lacks memory "
            "lets a process wait: ray status says what the cluster has. One that is stopped goes "
            "on with kill -CONT. logs/NAME.log in the run directory says what it does.",
            names, waited_s, limit_s,
        )  # fmt: skip


def _leave_cores(facts: Sequence[WorkerFacts]) -> int | None:
    """Let torch compute with this process's share of the machine's cores.

    Returns:
        How many threads it had; None: nothing was changed.
    """
    torch = sys.modules.get("torch")
    here = platform.node()
    beside = sum(worker.host == here and worker.name.startswith(_COMPUTING) for worker in facts)
    if torch is None or not beside or "OMP_NUM_THREADS" in os.environ:
        return None
    before: int = torch.get_num_threads()
    torch.set_num_threads(max(1, before // (1 + beside)))
    return before


def _close(handles: Sequence[WorkerHandle]) -> None:
    """Close them all at once, the last started first; leave those that take too long."""
    deadline = time.monotonic() + CLOSE_S
    for pending in [handle.start("close") for handle in reversed(handles)]:
        _await_end(pending, timeout_s=max(0.0, deadline - time.monotonic()))


def _await_end(pending: Pending, *, timeout_s: float) -> None:
    try:
        pending.result(timeout_s=timeout_s)
    except (WorkerLostError, RayLostError, TimeoutError):
        return
    except Exception as error:  # noqa: BLE001 -- the boundary around one worker
        logger.warning("a worker did not close: %s: %s", type(error).__name__, error)
