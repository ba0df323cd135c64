"""The trainer's process as the one that weights are sent from."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from trinity.runtime.ray.remote_weights import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import ray

    from trinity.common.ports import WeightSnapshot
    from trinity.runtime.ray.handle import Pending, RoomHandle
    from trinity.synchronizer.ipc_weights import IpcWeights
    from trinity.synchronizer.staging import WeightManifest
    from trinity.synchronizer.weights import PackedWeights


class RemoteSender:
    """Takes the steps of a sync from process to process in the trainer's room, or its first rank.

    Args:
        room: started with ``beats``, whose thread gives the copy while the trainer works.
        pack: lets the trainer, all of its ranks, take a step of that name, as it is told.
    """

    def __init__(self, room: RoomHandle, *, pack: Callable[..., Any]) -> None:
        self._room = room
        self._pack = pack
        self._endpoint = ""  # "": nobody has asked
        self._fetching = threading.Lock()  # guards the copy: engines that come back ask together
        self._copy: tuple[Any, ray.ObjectRef[PackedWeights]] | None = None  # None: nobody has asked

    @property
    def name(self) -> str:
        """Return the name of the room."""
        return self._room.name

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
            self._endpoint = self._room.call("weights", "host_rendezvous")
        return self._endpoint

    def start(self, step: str, *told: Any) -> Pending:
        """Let the room take a step."""
        return self._room.start("weights", step, *told)

    def leave(self, group: str) -> None:
        """Let the room leave the group at once."""
        self._room.at_once().start("weights", "leave", group)

    def kept(self) -> ray.ObjectRef[PackedWeights]:
        """Return a reference to a copy of what was packed last; the trainer may be at work."""
        return self._fetched()[1]

    def snapshot(self) -> WeightSnapshot:
        """Return what was packed last, which stays where it is."""
        return snapshot_of(*self._fetched())

    def end(self) -> None:
        """End the process."""
        self._room.kill()

    def _packed(self, step: str, *told: Any) -> Any:  # Any: what the step gives
        with self._fetching:
            self._copy = None
            return self._pack(step, *told)

    def _fetched(self) -> tuple[Any, ray.ObjectRef[PackedWeights]]:
        """Return the version of what was packed last and a reference to the one copy of it."""
        with self._fetching:
            if self._copy is None:
                self._copy = self._room.aside().call_with_payload("weights", "kept")
            return self._copy
