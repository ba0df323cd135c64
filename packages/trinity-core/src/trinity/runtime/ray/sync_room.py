"""The synchronizer in a process of its own: it hands weights on without holding them.

synchronizer --snapshot()--> trainer --> object store --reference--> engines
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from trinity.errors import RoomLostError
from trinity.runtime.assembly import make_sync
from trinity.runtime.pace import is_in_flight
from trinity.runtime.ray.handle import RoomHandle, find_room
from trinity.runtime.ray.remote_weights import RemoteTensors, snapshot_of
from trinity.runtime.ray.returning import Returning
from trinity.runtime.record.engine_weights import write_weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import ray

    from trinity.common.ports import WeightSnapshot, WeightVersion
    from trinity.runtime.ray.handle import Pending
    from trinity.runtime.ray.room import RoomContext
    from trinity.synchronizer.weights import PackedWeights

    Latest = tuple[WeightVersion, list[ray.ObjectRef[PackedWeights]]]

__all__ = ["SyncRoom"]

logger = logging.getLogger(__name__)


class SyncRoom:
    """Brings weights to all engines, and the latest ones to an engine that was started again.

    With groups in flight an engine that is lost is not waited for where another one has the
    weights: it gets the latest ones once it is back.

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
        self._may_go_on = is_in_flight(context.config)  # without an engine that is lost
        self._latest: Latest | None = None

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
            RoomLostError: an engine's process ended and did not come back; with groups in flight,
                all of them.
        """
        self._latest = (version, refs)  # first: an engine that starts meanwhile asks for it
        loaded: WeightVersion = self._method.sync(lambda: snapshot_of(version, refs[0]))
        lost = [engine for engine in self._engines if not engine.finish()]
        for engine in lost:
            if self._may_go_on and len(lost) < len(self._engines):
                engine.catch_up(self.latest)
            else:
                engine.load_once_back()
        return loaded

    def latest(self) -> Latest | None:
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
        self._changed = threading.Lock()  # guards the following
        self._is_followed = self._is_lost_again = False

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

    def finish(self) -> bool:
        """Return whether the weights are loaded; False: the process is lost, or not built again.

        Raises:
            Exception: the engine refuses them.
        """
        if self._loading is None:
            return True
        try:
            self._loading[0].result()
        except RoomLostError:
            return False
        except Exception:
            if self._is_built():
                raise
            return False
        self._loading = None
        return True

    def load_once_back(self) -> None:
        """Return when the weights are loaded by an engine that was started again.

        Raises:
            RoomLostError: it was not.
            Exception: it cannot be built.
        """
        assert self._handle is not None
        assert self._loading is not None
        (_, ref, version), self._loading = self._loading, None
        # the process that comes back asks for the latest weights by itself, perhaps too early
        if Returning(self._handle).first_answer("version") != version:
            self._handle.call("load_weights", ref)

    def catch_up(self, latest: Callable[[], Latest | None]) -> None:
        """Bring the latest weights once the engine is back, without waiting for it here."""
        with self._changed:
            if self._is_followed:
                self._is_lost_again = True
                return
            self._is_followed = True
        logger.warning(
            "%s is lost: weights go to the others, and to it once it is there", self._name
        )
        threading.Thread(
            target=self._follow, args=(latest,), name=f"{self._name}-returns", daemon=True
        ).start()

    def _follow(self, latest: Callable[[], Latest | None]) -> None:
        is_over = False
        while not is_over:
            try:
                is_up_to_date = self._has_latest(latest)
            except RoomLostError as error:
                if not error.is_final and latest() is not None:
                    continue
                is_up_to_date = True
            except Exception as error:  # noqa: BLE001 -- also why it cannot be built
                logger.warning("%s gets no weights any more: %s", self._name, error)
                is_up_to_date = True
            with self._changed:
                is_over = is_up_to_date and not self._is_lost_again
                self._is_lost_again, self._is_followed = False, not is_over

    def _has_latest(self, latest: Callable[[], Latest | None]) -> bool:
        """Return whether the engine has the latest weights, else bring them."""
        assert self._handle is not None
        version = Returning(self._handle).first_answer(
            "version", is_wanted=lambda: latest() is not None
        )
        newest = latest()
        if newest is None or newest[0] == version:  # None: this is closed
            return True
        self._handle.call("load_weights", newest[1][0])
        return False

    def _is_built(self) -> bool:
        assert self._handle is not None
        try:
            self._handle.facts()
        except Exception:  # noqa: BLE001 -- what keeps it from being built
            return False
        return True
