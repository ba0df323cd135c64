"""The experience buffer in a process of its own, with the strategy that reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.wire import encode
from trinity.runtime.assembly import make_bounded_source, make_storage, make_strategy
from trinity.runtime.group_shelf import GroupShelf
from trinity.runtime.ray.room import WithPayload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.config import Config
    from trinity.common.metrics import Metrics
    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.wire import Packet
    from trinity.runtime.ray.room import RoomContext

__all__ = ["BufferRoom", "Sampled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """What the driver learns about a batch that goes to the trainer."""

    metrics: Metrics
    eids: tuple[str, ...]
    num_due: int  # experiences that may still be read before the next sync,
    available: int  # and how many of them are there
    counts: Mapping[str, int]  # of a replay buffer


class BufferRoom:
    """Takes packets from the explorer, gives the strategy's batches to the trainer.

    Args:
        context: of the room.
        is_bounded: whether only what is due may be read (mode ``both``), or everything.
    """

    def __init__(self, context: RoomContext, *, is_bounded: bool) -> None:
        config, manager = context.config, context.manager
        chat_format = _chat_format(config)
        self._storage = make_storage(
            config, manager, chat_format=chat_format, rundir=context.rundir
        )
        self._source = None
        if is_bounded and config.mode != "explore":
            self._source = make_bounded_source(config, manager, storage=self._storage)
        self._strategy = None
        if config.mode != "explore":
            source = self._source or self._storage
            self._strategy = make_strategy(config, manager, source=source, chat_format=chat_format)
        self._written: set[str] = set()

    def write(self, batch_id: str, packet: Packet) -> None:
        """Store the experiences of a packet, once however often it comes.

        Raises:
            BufferClosedError: the storage was closed.
        """
        if batch_id in self._written:
            return
        self._storage.write(packet.held())
        self._written.add(batch_id)

    def write_group(self, packet: Packet) -> None:
        """Store what a group left.

        Raises:
            PluginError: an experience says that it is of another group.
        """
        assert isinstance(self._storage, GroupShelf)
        self._storage.write_group(packet.held())

    def take(self, groups: Sequence[str], *, is_again: bool = False) -> int:
        """Let these groups be read next; return how many experiences they have."""
        assert isinstance(self._storage, GroupShelf)
        return self._storage.take(groups, is_again=is_again)

    def sample(self, step: int, *, num_due: int | None) -> WithPayload:
        """Return :class:`Sampled` and the packet of the strategy's batch.

        Args:
            step: the optimizer step.
            num_due: how many experiences may be read; None: as many as the last sample left.

        Raises:
            StopIteration: there is nothing left.
        """
        assert self._strategy is not None
        self._allow(num_due)
        experiences, metrics = self._strategy.sample(step)
        packet = encode(experiences)
        source = self._source
        sampled = Sampled(
            metrics=metrics,
            eids=packet.eids,
            num_due=source.num_due if source else 0,
            available=source.available() if source else 0,
            counts=self.counts(),
        )
        return WithPayload(sampled, packet)

    def counts(self) -> dict[str, int]:
        """Return what became of the experiences in a replay buffer; empty: it is none."""
        return dict(self._storage.counts())

    def available(self, *, num_due: int | None) -> int:
        """Return how many of the due experiences can be read."""
        self._allow(num_due)
        return self._source.available() if self._source else int(self._storage.available())

    def num_stored(self) -> int:
        """Return how many experiences a storage that is only read gives."""
        assert not isinstance(self._storage, GroupShelf)
        return len(self._storage)

    def put_back(self, packet: Packet) -> None:
        """Take back what was sampled last and could not be trained."""
        assert self._strategy is not None
        self._strategy.put_back(packet.held())

    def waiting(self) -> Packet:
        """Return what was written and not read, for a checkpoint."""
        return encode(self._storage.waiting())

    def strategy_state(self) -> dict[str, Any]:
        """Return what a checkpoint holds of the strategy."""
        return self._strategy.state_dict() if self._strategy else {}

    def storage_state(self) -> dict[str, Any]:
        """Return what a checkpoint holds of the storage."""
        return self._storage.state_dict()

    def load_strategy(self, state: dict[str, Any]) -> None:
        """Go on from the strategy's state."""
        if self._strategy is not None:
            self._strategy.load_state_dict(state)

    def load_storage(self, state: dict[str, Any]) -> None:
        """Go on from the storage's state."""
        self._storage.load_state_dict(state)

    def begin_anew(self) -> None:
        """Say that the run begins from its start."""
        self._storage.begin_anew()

    def forget(self, before: int) -> None:
        """Say before which step no run goes back."""
        self._storage.forget(before)

    def close(self) -> None:
        """Close the storage."""
        self._storage.close()

    def _allow(self, num_due: int | None) -> None:
        if self._source is not None and num_due is not None:
            self._source.num_due = num_due


def _chat_format(config: Config) -> ChatFormat | None:
    """Return what turns rows into tokens; None for a queue or a ledger, which hold none."""
    given = config.buffer.trainer_input
    buffer = given.experience_buffer
    has_rows = buffer is not None and buffer.storage_type not in {"queue", "sql"}
    if not has_rows and not given.auxiliary_buffers:
        return None
    from trinity.common.models.chat_format import ChatFormat

    return ChatFormat.from_config(config.model)
