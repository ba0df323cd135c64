"""The synchronizer in a process of its own: it hands weights on without holding them.

synchronizer --snapshot()--> trainer --> object store --reference--> engines
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.errors import RoomLostError
from trinity.runtime.assembly import make_sync
from trinity.runtime.ray.handle import RoomHandle, find_room
from trinity.runtime.ray.remote_weights import RemoteTensors, snapshot_of
from trinity.runtime.ray.returning import Returning
from trinity.runtime.record.engine_weights import write_weights

if TYPE_CHECKING:
    from pathlib import Path

    import ray

    from trinity.common.ports import WeightSnapshot, WeightVersion
    from trinity.runtime.ray.handle import Pending
    from trinity.runtime.ray.room import RoomContext
    from trinity.synchronizer.weights import PackedWeights

__all__ = ["SyncRoom"]


class SyncRoom:
    """Brings weights to all engines, and the latest ones to an engine that was started again.

    Args:
        context: of the room.
        namespace: of the run.
        num_engines: how many there are.
    """

    def __init__(self, context: RoomContext, *, namespace: str, num_engines: int) -> None:
        self._namespace = namespace
        self._trainer: RoomHandle | None = None
        self._engines = [_Engine(namespace, f"engine-{number}") for number in range(num_engines)]
        self._method = make_sync(context.config, context.manager, engines=self._engines)
        self._latest: tuple[WeightVersion, list[ray.ObjectRef[PackedWeights]]] | None = None

    def sync_trainer(self) -> WeightVersion:
        """Let all engines load the trainer's weights; return their version.

        Raises:
            RoomLostError: the trainer's process ended, or an engine's that did not come back.
        """
        if self._trainer is None:  # it is started before this room, and never again
            self._trainer = find_room(self._namespace, "trainer")
        version, ref = self._trainer.call_with_payload("snapshot")
        return self.sync(version, [ref])

    def sync(
        self, version: WeightVersion, refs: list[ray.ObjectRef[PackedWeights]]
    ) -> WeightVersion:
        """Let all engines load the weights behind the reference; return their version.

        Args:
            version: of the weights.
            refs: one reference, in a list so that it is not resolved on the way.

        Raises:
            RoomLostError: an engine's process ended and did not come back.
        """
        self._latest = (version, refs)  # first: an engine that starts meanwhile asks for it
        loaded: WeightVersion = self._method.sync(lambda: snapshot_of(version, refs[0]))
        for engine in self._engines:
            engine.finish()
        return loaded

    def latest(self) -> tuple[WeightVersion, list[ray.ObjectRef[PackedWeights]]] | None:
        """Return the weights that every engine should have; None: the model's own."""
        return self._latest

    def save(self, checkpoint: Path) -> None:
        """Write the weights that the engines got last into a checkpoint's folder."""
        assert self._latest is not None
        version, refs = self._latest
        write_weights(snapshot_of(version, refs[0]), checkpoint)

    def close(self) -> None:
        """Let go of the weights."""
        self._latest = None


class _Engine:
    """What a sync method sees of an engine; all of them load at the same time."""

    def __init__(self, namespace: str, name: str) -> None:
        self._namespace = namespace
        self._name = name
        self._handle: RoomHandle | None = None
        self._loading: tuple[Pending, Any, WeightVersion] | None = None

    def load_weights(self, snapshot: WeightSnapshot) -> None:
        """Begin to load; :meth:`finish` tells how it ended."""
        import ray

        tensors = snapshot.tensors
        if isinstance(tensors, RemoteTensors):
            ref = tensors.ref
        else:  # a sync method that made tensors of its own
            from trinity.synchronizer.weights import PackedWeights

            ref = ray.put(PackedWeights.of(snapshot))
        if self._handle is None:  # engines are started after this room
            self._handle = find_room(self._namespace, self._name)
        self._loading = self._handle.start("load_weights", ref), ref, snapshot.version

    def finish(self) -> None:
        """Return when the weights are loaded, by an engine that was started again too."""
        if self._loading is None:
            return
        assert self._handle is not None
        (loading, ref, version), self._loading = self._loading, None
        try:
            loading.result()
        except RoomLostError:  # the process that comes back asks for the latest weights by itself,
            if Returning(self._handle).first_answer("version") != version:  # perhaps too early
                self._handle.call("load_weights", ref)
