"""The synchronizer of a run over Ray: it hands weights on without holding them.

driver --snapshot()--> trainer --> object store --reference--> engines
driver --steps-------> trainer ==> process group ============> engines   (gloo, nccl)
driver --steps-------> trainer ==> memory of one machine ====> engines   (ipc)
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import ray

from trinity.errors import RayLostError
from trinity.runtime.assembly import make_sync
from trinity.runtime.ray.remote_weights import RemoteTensors, snapshot_of
from trinity.runtime.ray.watch import LOOK_S
from trinity.runtime.record.engine_weights import write_weights
from trinity.synchronizer.memory_sync import MemorySync

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.common.ports import SyncMethod, WeightSnapshot, WeightVersion
    from trinity.extend import PluginManager
    from trinity.runtime.ray.kept_engine import KeptEngine
    from trinity.runtime.ray.remote_sender import RemoteSender

logger = logging.getLogger(__name__)


class RemoteSync:
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
        engines: Sequence[KeptEngine],
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
            RoomLostError: the trainer's process ended, or those of all engines and none took the
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

    def close(self) -> None:
        """Let go of the weights; safe to call twice."""
        self._latest = None
        for engine in self._engines:
            engine.close()

    def _noted(self, snapshot: WeightSnapshot) -> WeightSnapshot:
        assert isinstance(snapshot.tensors, RemoteTensors)
        self._latest = lambda: snapshot
        return snapshot


def _first_back(lost: Sequence[KeptEngine]) -> KeptEngine:
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
    """All engines at once, as mode ``bench`` sees them."""

    def __init__(self, sync: RemoteSync) -> None:
        self._sync = sync

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Let all of them load these weights."""
        self._sync.load(snapshot)

    def close(self) -> None:
        """Bring them no more weights; their rooms are closed by who started them."""
        self._sync.close()
