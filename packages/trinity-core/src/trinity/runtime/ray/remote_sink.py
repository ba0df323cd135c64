"""Where the explorer's room writes experiences: the buffer's room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.wire import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience
    from trinity.runtime.ray.handle import RoomHandle

__all__ = ["RemoteGroups", "RemoteSink"]


class RemoteSink:
    """Sends each explore step's experiences as one packet.

    Attributes:
        batch_id: of what is written next; the buffer takes each once.
    """

    def __init__(self, buffer: RoomHandle) -> None:
        self._buffer = buffer
        self.batch_id = ""

    def write(self, experiences: Sequence[Experience]) -> None:
        """Store the experiences; waits while the buffer is full."""
        if experiences:
            self._buffer.call("write", self.batch_id, encode(experiences))

    def close(self) -> None:
        """Leave the buffer open: it is not this room's."""


class RemoteGroups:
    """Sends each group as one packet, and says which groups are taken."""

    def __init__(self, buffer: RoomHandle) -> None:
        self._buffer = buffer

    def write(self, experiences: Sequence[Experience]) -> None:
        """Store what a group left."""
        if experiences:
            self._buffer.call("write_group", encode(experiences))

    def take(self, groups: Sequence[str], *, is_again: bool = False) -> int:
        """Let these groups be read next; return how many experiences they have."""
        if not groups:
            return 0
        count: int = self._buffer.call("take", groups, is_again=is_again)
        return count

    def close(self) -> None:
        """Leave the buffer open: it is not this room's."""
