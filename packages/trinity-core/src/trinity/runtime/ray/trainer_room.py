"""The trainer in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.runtime.assembly import make_trainer
from trinity.runtime.ray.room import WithPayload
from trinity.runtime.record.samples import SampleLog
from trinity.synchronizer.weights import PackedWeights

if TYPE_CHECKING:
    from pathlib import Path

    from trinity.common.metrics import Metrics
    from trinity.common.wire import Packet
    from trinity.runtime.ray.room import RoomContext

__all__ = ["TrainerRoom"]


class TrainerRoom:
    """Trains on packets.

    Args:
        context: of the room.
        total_steps: optimizer steps of the run, for the learning rate.
    """

    def __init__(self, context: RoomContext, *, total_steps: int) -> None:
        config, manager = context.config, context.manager
        self._trainer = make_trainer(config, manager, total_steps=total_steps)
        self._samples = SampleLog.of(config, manager, trainer=self._trainer, rundir=context.rundir)

    def train_step(self, packet: Packet, *, step: int) -> Metrics:
        """Return the metrics of one optimizer step."""
        experiences = packet.decode()
        metrics: Metrics = self._trainer.train_step(experiences, step=step)
        if self._samples is not None:
            self._samples.trained(step, experiences)
        return metrics

    def snapshot(self) -> WithPayload:
        """Return the version, and the weights; they are copied once, into the object store."""
        snapshot = self._trainer.snapshot(copy=False)
        return WithPayload(snapshot.version, PackedWeights.of(snapshot))

    def save(self, directory: Path) -> None:
        """Write the trainer's part of a checkpoint."""
        self._trainer.save(directory)

    def load(self, directory: Path) -> None:
        """Go on from a checkpoint."""
        self._trainer.load(directory)

    def close(self) -> None:
        """Free what the trainer holds."""
        self._trainer.close()
