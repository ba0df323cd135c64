"""Write metrics as TensorBoard scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.ports import Monitor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class TensorboardMonitor(Monitor):
    """Writes event files under ``tensorboard/<role>``; read them with ``tensorboard --logdir``."""

    def __init__(self, *, directory: Path, role: str) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(directory / "tensorboard" / role))

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        import time

        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()
        ]
        self._writer.add_event(
            Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        )

    def log_samples(self, samples: Sequence[Mapping[str, Any]], *, step: int) -> None:
        import time

        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text.metadata import create_summary_metadata
        from tensorboard.util.tensor_util import make_tensor_proto

        values = [
            Summary.Value(
                tag=f"samples/{number}",
                metadata=create_summary_metadata("", ""),
                tensor=make_tensor_proto([_as_markdown(sample).encode()]),
            )
            for number, sample in enumerate(samples)
        ]
        self._writer.add_event(
            Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        )

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _as_markdown(sample: Mapping[str, Any]) -> str:
    """Return a sample as TensorBoard shows it: texts indented, so that no markup in them counts."""
    numbers = ", ".join(f"{name} {sample[name]}" for name in ("eid", "reward", "advantage"))
    texts = (
        "\n".join(f"    {line}" for line in sample[name].splitlines() or [""])
        for name in ("prompt", "response")
    )
    return "\n\n".join([numbers, *texts])
