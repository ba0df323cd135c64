"""The trainer in another process, as the loop calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.wire import encode
from trinity.runtime.ray.remote_sender import RemoteSender
from trinity.runtime.ray.remote_weights import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports import WeightSnapshot
    from trinity.runtime.ray.handle import RoomHandle


class RemoteTrainer:
    """The trainer's room.

    Attributes:
        sender: of its weights, for sync methods that do without the object store.
    """

    def __init__(self, room: RoomHandle) -> None:
        self._room = room
        self.sender = RemoteSender(room, pack=lambda *told: room.call("weights", *told))

    def train_step(self, experiences: Sequence[Experience], *, step: int) -> Metrics:
        """Return the metrics of one optimizer step."""
        metrics: Metrics = self._room.call("train_step", encode(experiences), step=step)
        return metrics

    def snapshot(self, *, copy: bool) -> WeightSnapshot:
        """Return the weights, which stay in the object store; ``copy`` makes no difference."""
        version, ref = self._room.call_with_payload("snapshot")
        return snapshot_of(version, ref)

    def save(self, directory: Path) -> None:
        """Write the trainer's part of a checkpoint."""
        self._room.call("save", directory.absolute())

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint."""
        self._room.call("load", directory.absolute())

    def close(self) -> None:
        """Leave the room to whoever started it."""
