"""Write metrics as TensorBoard scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["TensorboardMonitor"]


class TensorboardMonitor:
    """Writes event files under ``tensorboard/<role>``; read them with ``tensorboard --logdir``."""

    def __init__(self, *, directory: Path, role: str) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(directory / "tensorboard" / role))

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Write one scalar for each metric."""
        import time

        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()
        ]
        self._writer.add_event(
            Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        )

    def flush(self) -> None:
        """Hand to the operating system what was logged: a checkpoint notes how much that is."""
        self._writer.flush()

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()
