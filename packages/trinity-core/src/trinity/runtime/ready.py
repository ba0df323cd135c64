"""What a sample strategy may read: rows that are ready, or the groups that a step takes.

rows    explorer --write--> storage --read, up to the last step that may be consumed--> strategy
groups  explorer --write, a group at a time--> storage --take--> the next batch --read--> strategy
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience
    from trinity.common.ports import Storage
    from trinity.explorer.rollout_buffer import RolloutBuffer


class _ReadySource:
    """What both sources have in common: what is put back is ready again."""

    def __init__(self, stored: Storage, buffer: RolloutBuffer) -> None:
        self._stored, self._buffer = stored, buffer

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Give back what was read last and not used: it is ready again."""
        self._stored.put_back(experiences)
        with self._buffer.changed:
            self._buffer.put_back(len(experiences))

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the run's checkpoint holds the buffer."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Accept the empty state."""


class ReadyGroups(_ReadySource):
    """A source for a sample strategy: the groups that a step took, all of them at once."""

    last = 0.0  # of rollout steps; groups are taken by name

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return all that was taken, however many were asked for.

        Raises:
            StopIteration: nothing was taken.
        """
        return self._stored.read(max(count, self.available()), timeout_s=timeout_s)

    def available(self) -> int:
        return self._stored.available()

    def reconcile(self) -> None:
        """Do nothing: no group is given up for its age."""


class ReadyRows(_ReadySource):
    """A source that hands out the rows of rollout steps up to :attr:`last`, oldest first.

    A storage that gives rows again makes a short batch a full one: the count of ready rows says how
    many batches there are, and rows of earlier steps fill them up.

    Args:
        storage: where the rows lie.
        buffer: which of them are ready; it is told what was read.

    Attributes:
        last: the youngest rollout step that may be consumed.
    """

    def __init__(self, storage: Storage, buffer: RolloutBuffer) -> None:
        super().__init__(storage, buffer)
        self._storage = storage
        self.last = math.inf

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return up to ``count`` of the ready rows; it never waits for more.

        Raises:
            StopIteration: none is ready, or what was ready is too old.
        """
        before = self._storage.available()
        if min_model_version > 0:
            self._storage.drop_older(min_model_version)
            if not self._storage.gives_again:  # else rows that were read before are among them
                self._note_dropped(before - self._storage.available())
        wanted, before = min(count, self.available()), self._storage.available()
        if wanted == 0:
            raise StopIteration
        rows: list[Experience] = []
        try:
            rows = self._storage.read(
                wanted, timeout_s=timeout_s, min_model_version=min_model_version
            )
            with self._buffer.changed:
                self._buffer.consume_rows(len(rows), last=self.last)
        finally:  # what is too old is dropped while it is read, too
            there = self._storage.available()
            if not self._storage.gives_again:
                self._note_dropped(before - len(rows) - there)
            self.reconcile()
        return rows

    def reconcile(self) -> None:
        """Forget ready rows that the storage does not have: it gave them up."""
        self._note_dropped(self._buffer.num_rows(last=self.last) - self._storage.available())

    def available(self) -> int:
        """Return how many rows can be read now: those that are ready, and what fills them up."""
        with self._buffer.changed:
            if not self._buffer.num_rows(last=self.last):
                return 0
            return self._buffer.available(there=self._storage.available(), last=self.last)

    def _note_dropped(self, count: int) -> None:
        with self._buffer.changed:
            self._buffer.drop_rows(max(0, count))
