"""The weights of a run over Ray, handed on without holding them.

driver --snapshot()--> trainer --> object store --reference--> engines
driver --steps-------> trainer ==> process group ============> engines   (gloo, nccl)
driver --steps-------> trainer ==> memory of one machine ====> engines   (ipc)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import ray

from trinity.common.ports import SyncMethod, WeightSnapshot, WeightVersion
from trinity.errors import RayLostError
from trinity.runtime.assembly import make_sync
from trinity.runtime.ray.ray_processes import LOOK_S
from trinity.runtime.record.checkpoint import write_weights
from trinity.synchronizer.memory_sync import MemorySync

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from torch import Tensor

    from trinity.common.config import Config
    from trinity.common.ports.trainer import WeightDigest
    from trinity.extend import PluginManager
    from trinity.runtime.ray.engine_supervisor import EngineSupervisor
    from trinity.runtime.ray.worker_handle import Pending, WorkerHandle
    from trinity.synchronizer.ipc_weights import IpcWeights
    from trinity.synchronizer.staging import WeightManifest
    from trinity.synchronizer.weights import PackedWeights

FETCHED_S = 600.0  # so long weights may take from the object store of another machine


class RemoteTensors(Mapping[str, "Tensor"]):
    """The tensors behind a reference, fetched when one of them is asked for."""

    def __init__(self, ref: ray.ObjectRef[PackedWeights]) -> None:
        self.ref = ref

    def __getitem__(self, name: str) -> Tensor:
        return self._fetched[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fetched)

    def __len__(self) -> int:
        return len(self._fetched)

    @cached_property
    def _fetched(self) -> Mapping[str, Tensor]:
        packed: PackedWeights = ray.get(self.ref, timeout=FETCHED_S)
        return packed.snapshot().tensors


def snapshot_of(version: WeightVersion, ref: ray.ObjectRef[PackedWeights]) -> WeightSnapshot:
    """Return a snapshot whose tensors stay where they are."""
    return WeightSnapshot(version=version, tensors=RemoteTensors(ref))


class RemoteSender:
    """Takes the steps of a sync from process to process in the trainer's worker, or its first rank.

    Args:
        worker: a thread of it gives the copy while the trainer works.
        pack: lets the trainer, all of its ranks, take a step of that name, as it is told.
    """

    def __init__(self, worker: WorkerHandle, *, pack: Callable[..., Any]) -> None:
        self._worker = worker
        self._pack = pack
        self._endpoint = ""  # "": nobody has asked
        self._fetching = threading.Lock()  # guards the copy: engines that come back ask together
        self._copy: tuple[Any, ray.ObjectRef[PackedWeights]] | None = None  # None: nobody has asked

    @property
    def name(self) -> str:
        return self._worker.name

    def pack(self) -> WeightManifest:
        """Copy the weights there, for this sync and for engines that come back after it."""
        manifest: WeightManifest = self._packed("pack")
        return manifest

    def share(self, where: Collection[str]) -> IpcWeights:
        """Copy the weights there to where processes of that machine can have them."""
        shared: IpcWeights = self._packed("share", where)
        return shared

    def endpoint(self) -> str:
        """Return the endpoint of the rendezvous of all groups."""
        if not self._endpoint:
            self._endpoint = self._worker.call("weights", "host_rendezvous")
        return self._endpoint

    def start(self, step: str, *told: Any) -> Pending:
        return self._worker.start("weights", step, *told)

    def leave(self, group: str) -> None:
        """Let the worker leave the group at once."""
        self._worker.at_once().start("weights", "leave", group)

    def kept(self) -> ray.ObjectRef[PackedWeights]:
        """Return a reference to a copy of what was packed last; the trainer may be at work."""
        return self._fetched()[1]

    def snapshot(self) -> WeightSnapshot:
        """Return what was packed last, which stays where it is."""
        return snapshot_of(*self._fetched())

    def end(self) -> None:
        self._worker.kill()

    def _packed(self, step: str, *told: Any) -> Any:  # Any: what the step gives
        with self._fetching:
            self._copy = None
            return self._pack(step, *told)

    def _fetched(self) -> tuple[Any, ray.ObjectRef[PackedWeights]]:
        """Return the version of what was packed last and a reference to the one copy of it."""
        with self._fetching:
            if self._copy is None:
                self._copy = self._worker.aside().call_with_payload("weights", "kept")
            return self._copy


logger = logging.getLogger(__name__)


class RemoteSync(SyncMethod):
    """Brings weights to all engines, and remembers where the latest ones are.

    An engine that is lost is not waited for where another one has the weights: that answers for
    it, and it gets the latest ones once it is back.

    Args:
        config: a resolved configuration.
        manager: the plugins.
        engines: all of them.
        sender: the trainer's process; None: nothing is trained.
    """

    def __init__(
        self,
        config: Config,
        manager: PluginManager,
        *,
        engines: Sequence[EngineSupervisor],
        sender: RemoteSender | None = None,
    ) -> None:
        self._engines = engines
        self._sender = sender
        self._method = make_sync(config, manager, engines=engines, sender=sender)
        self._latest: Callable[[], WeightSnapshot] | None = None  # None: nothing was brought

    def sync(self, snapshot: Callable[[], WeightSnapshot]) -> WeightVersion:
        """Let all engines load the weights; return their version.

        Args:
            snapshot: gives a reference to them.

        Raises:
            WorkerLostError: the trainer's process ended, or those of all engines and none took the
                place of one.
        """
        self._latest = self._sender.snapshot if self._sender is not None else None
        return self._brought(self._method, snapshot)

    def _brought(self, method: SyncMethod, snapshot: Callable[[], WeightSnapshot]) -> WeightVersion:
        version: WeightVersion = method.sync(lambda: self._noted(snapshot()))
        lost = [engine for engine in self._engines if not engine.finish()]
        if len(lost) == len(self._engines):
            lost.remove(_first_back(lost))
        for engine in lost:
            logger.warning(
                "%s is lost: weights go to the others, and to it once it is there", engine.name
            )
        return version

    def save(self, checkpoint: Path) -> None:
        """Write the weights that the engines have into a checkpoint's folder."""
        assert self._latest is not None
        write_weights(self._latest(), checkpoint)

    def load(self, snapshot: WeightSnapshot) -> None:
        """Bring these weights, which are in this process, to all engines."""
        from trinity.synchronizer.weights import PackedWeights

        packed = snapshot_of(snapshot.version, ray.put(PackedWeights.of(snapshot)))
        engines: Any = self._engines  # Any: they load as engines in this process do
        self._brought(MemorySync(engines), lambda: packed)

    def all_engines(self, method: str, *args: Any) -> None:
        for engine, call in [(one, one.start(method, *args)) for one in self._engines]:
            engine.check_took(method, call)

    def digests(self, version: int) -> dict[str, WeightDigest | None]:
        return {engine.name: engine.weight_digest(version) for engine in self._engines}

    def close(self) -> None:
        """Let go of the weights; safe to call twice."""
        self._latest = None
        for engine in self._engines:
            engine.close()

    def _noted(self, snapshot: WeightSnapshot) -> WeightSnapshot:
        assert isinstance(snapshot.tensors, RemoteTensors)
        self._latest = lambda: snapshot
        return snapshot


def _first_back(lost: Sequence[EngineSupervisor]) -> EngineSupervisor:
    """Return the engine that is there first, with the weights.

    Raises:
        Exception: why the first of them does not come back, once there is a reason for each.
    """
    began, failures = time.monotonic(), dict[str, Exception]()
    while len(failures) < len(lost):
        for engine in lost:
            try:
                if engine.is_back(since=began, wait_s=LOOK_S / len(lost)):
                    return engine
            except RayLostError:  # nobody answers then
                raise
            except Exception as error:  # noqa: BLE001 -- raised where it is that of all of them
                failures[engine.name] = error
    raise failures[lost[0].name]


class RemoteEngines:
    """All engines at once, as mode ``bench`` sees them, and who lets them sleep."""

    def __init__(self, sync: RemoteSync) -> None:
        self._sync = sync

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        self._sync.load(snapshot)

    def sleep(self, level: int) -> None:
        self._sync.all_engines("sleep", level)

    def wake_up(self, tags: Sequence[str]) -> None:
        self._sync.all_engines("wake_up", tags)

    def close(self) -> None:
        self._sync.close()
