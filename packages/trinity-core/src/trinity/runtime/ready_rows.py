"""What a sample strategy may read: rows of rollouts that the next train step consumes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience
    from trinity.explorer.rollout_buffer import RolloutBuffer
    from trinity.runtime.whole_storage import WholeStorage


class ReadyRows:
    """A source that hands out the rows of rollout steps up to :attr:`last`, oldest first.

    A storage that gives rows again makes a short batch a full one: the count of ready rows says how
    many batches there are, and rows of earlier steps fill them up.

    Args:
        storage: where the rows lie.
        buffer: which of them are ready; it is told what was read.

    Attributes:
        last: the youngest rollout step that may be consumed.
    """

    def __init__(self, storage: WholeStorage, buffer: RolloutBuffer) -> None:
        self._storage, self._buffer = storage, buffer
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

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Give back what was read last and not used: it is ready again."""
        self._storage.put_back(experiences)
        with self._buffer.changed:
            self._buffer.put_back(len(experiences))

    def available(self) -> int:
        """Return how many rows can be read now: those that are ready, and what fills them up."""
        with self._buffer.changed:
            if not self._buffer.num_rows(last=self.last):
                return 0
            return self._buffer.available(there=self._storage.available(), last=self.last)

    def read_for(self, step: int) -> None:
        """Tell the storage which train step reads from now on."""
        self._storage.read_for(step)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the run's checkpoint holds the buffer."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Accept the empty state."""

    def _note_dropped(self, count: int) -> None:
        with self._buffer.changed:
            self._buffer.drop_rows(max(0, count))
