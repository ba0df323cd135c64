"""What the pipeline holds of rooms in other processes: the methods of the local ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.wire import encode
from trinity.runtime.ray.remote_weights import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import ray

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports import WeightSnapshot
    from trinity.common.wire import Packet
    from trinity.explorer.explorer import ExploreResult
    from trinity.runtime.ray.buffer_room import Sampled
    from trinity.runtime.ray.handle import RoomHandle

__all__ = [
    "RemoteBatch",
    "RemoteBuffer",
    "RemoteExplorer",
    "RemoteFlight",
    "RemoteStrategy",
    "RemoteTrainer",
]

LISTENS_EVERY_S = 10.0  # to what an explorer says while a batch is not whole


@dataclass(frozen=True, slots=True)
class RemoteBatch:
    """A batch on its way from the buffer to the trainer."""

    ref: ray.ObjectRef[Packet]
    eids: tuple[str, ...]  # the unique id of each experience

    def __len__(self) -> int:
        return len(self.eids)


class RemoteExplorer:
    """The explorer's room.

    Args:
        room: its handle.
        state: where the tasks stand at the start.
    """

    def __init__(self, room: RoomHandle, *, state: dict[str, Any]) -> None:
        self._room = room
        self._state = state

    def explore_step(self, step: int) -> ExploreResult:
        """Run the tasks of a step."""
        answer = self._room.call("explore_step", step, None)
        self._state = answer["state"]
        result: ExploreResult = answer["result"]
        return result

    def evaluate(self, step: int) -> Metrics:
        """Run all evaluation tasks."""
        metrics: Metrics = self._room.call("evaluate", step)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return where the tasks stand."""
        return self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._room.call("load_state_dict", state)
        self._state = state

    def close(self) -> None:
        """Leave the room to whoever started it."""


class RemoteFlight(RemoteExplorer):
    """The room of an explorer whose groups are in flight."""

    def explore_step(self, step: int) -> ExploreResult:
        """Return what a whole batch gives, once there is one; what is said meanwhile is heard."""
        while True:
            result: ExploreResult | None = self._room.call(
                "next_batch", step, timeout_s=LISTENS_EVERY_S
            )
            if result is not None:
                return result

    def loaded(self, version: int, *, is_all: bool = True) -> None:
        """Note what weights the engines have: trained on all that was taken, or on less."""
        self._room.call("loaded", version, is_all=is_all)

    def state_dict(self) -> dict[str, Any]:
        """Return where tasks and groups stand now."""
        state: dict[str, Any] = self._room.call("state_dict")
        return state


class RemoteBuffer:
    """The buffer's room as storage and as bounded source; knows what the last sample left."""

    def __init__(self, room: RoomHandle) -> None:
        self.room = room
        self._num_due = 0
        self._is_told = True  # whether the room knows num_due
        self._available: int | None = None  # None: not known
        self._counts: Mapping[str, int] = {}

    @property
    def num_due(self) -> int:
        """Return how many experiences may be read now."""
        return self._num_due

    @num_due.setter
    def num_due(self, count: int) -> None:
        self._num_due, self._is_told, self._available = count, False, None

    def available(self) -> int:
        """Return how many of them are there."""
        if self._available is None:
            self._available = self.room.call("available", num_due=self._untold())
        return self._available

    def sample(self, step: int) -> tuple[RemoteBatch, Metrics]:
        """Return the strategy's batch, which stays where it is.

        Raises:
            StopIteration: there is nothing left, or what was there is too old.
        """
        untold, self._available = self._untold(), None  # too old: the room dropped it
        sampled: Sampled
        sampled, ref = self.room.call_with_payload("sample", step, num_due=untold)
        self._num_due, self._available = sampled.num_due, sampled.available
        self._counts = sampled.counts
        return RemoteBatch(ref, sampled.eids), sampled.metrics

    def counts(self) -> Mapping[str, int]:
        """Return what a replay buffer counted up to the last sample or checkpoint."""
        return self._counts

    def write(self, experiences: Sequence[Experience]) -> None:
        """Store what a checkpoint held."""
        if experiences:
            self.room.call("write", "of the checkpoint", encode(experiences))

    def put_back(self, batch: RemoteBatch) -> None:
        """Store what was sampled last and not used in its old place."""
        self.room.call("put_back", batch.ref)
        self._available = None

    def waiting(self) -> list[Experience]:
        """Return what was written and not read."""
        packet: Packet = self.room.call("waiting")
        return packet.decode()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the storage."""
        state: dict[str, Any] = self.room.call("storage_state")
        self._counts = self.room.call("counts")
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.room.call("load_storage", state)
        self._counts = self.room.call("counts")

    def begin_anew(self) -> None:
        """Say that the run begins from its start."""
        self.room.call("begin_anew")

    def forget(self, before: int) -> None:
        """Say before which step no run goes back."""
        self.room.call("forget", before)

    def close(self) -> None:
        """Leave the room to whoever started it."""

    def _untold(self) -> int | None:
        told, self._is_told = self._is_told, True
        return None if told else self._num_due


class RemoteStrategy:
    """The sample strategy, which stands in the buffer's room."""

    def __init__(self, buffer: RemoteBuffer) -> None:
        self._buffer = buffer

    def sample(self, step: int) -> tuple[RemoteBatch, Metrics]:
        """Return the batch of a step and metrics."""
        return self._buffer.sample(step)

    def put_back(self, batch: RemoteBatch) -> None:
        """Give the buffers back what was sampled last and not used."""
        self._buffer.put_back(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        state: dict[str, Any] = self._buffer.room.call("strategy_state")
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self._buffer.room.call("load_strategy", state)


class RemoteTrainer:
    """The trainer's room."""

    def __init__(self, room: RoomHandle) -> None:
        self._room = room

    def train_step(self, batch: RemoteBatch, *, step: int) -> Metrics:
        """Return the metrics of one optimizer step."""
        metrics: Metrics = self._room.call("train_step", batch.ref, step=step)
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
