"""What a sample strategy may read: rows that are ready, or the groups that a step takes.

    rows    explorer --write--> storage --read, up to the last step that may be consumed--> strategy
    groups  explorer --write, a group at a time--> shelf --take--> the next batch --read--> strategy

A storage that is read by the names of groups keeps them itself (:class:`LedgerGroupStorage`).
Another one gives out what was written first, so its groups are held in memory.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from trinity.common.ports import Storage
from trinity.errors import PluginError, TrinityError
from trinity.explorer.group_names import group_of
from trinity.runtime.plugin_adapter import abilities_in

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.explorer.rollout_buffer import RolloutBuffer


class GroupStorage(Storage):
    """A storage whose groups come out as they are taken, whenever they were written.

    Any number of threads may call it.

    Args:
        storage: what keeps the experiences, first in, first out.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._groups: dict[str, list[Experience]] = {}  # that no step has taken
        self._taken: list[Experience] = []
        self._lock = threading.Lock()

    def write(self, experiences: Sequence[Experience]) -> None:
        with self._lock:
            self._storage.write(experiences)
            self._fetch()

    def write_group(self, experiences: Sequence[Experience]) -> None:
        """Store what a group left.

        Raises:
            PluginError: an experience says that it is of another group.
        """
        names = sorted({group_of(experience.eid) for experience in experiences})
        if len(names) > 1:
            raise PluginError(
                f"an experience operator gave group {names[0]} an experience of group {names[1]}. "
                f"With sync_style fully_async operators get one group at a time: leave eid.batch "
                f"and eid.task as they are, or use sync_style fixed."
            )
        self.write(experiences)

    def take(self, groups: Sequence[str]) -> int:
        """Let these groups be read next, in this order; return how many experiences they have.

        Raises:
            TrinityError: one is not there.
        """
        with self._lock:
            _check_there(groups, self._groups, held=f"{len(self._groups)} others wait")
            rows = [row for name in groups for row in self._groups.pop(name)]
            self._taken += rows
            return len(rows)

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return what was taken first; it never waits.

        Raises:
            StopIteration: nothing was taken.
        """
        with self._lock:
            rows, self._taken = self._taken[:count], self._taken[count:]
        if not rows:
            raise StopIteration
        return rows

    def put_back(self, experiences: Sequence[Experience]) -> None:
        with self._lock:
            self._taken = [*experiences, *self._taken]

    def available(self) -> int:
        return len(self._taken)

    def waiting(self) -> list[Experience]:
        with self._lock:
            return [*self._taken, *(row for group in self._groups.values() for row in group)]

    def read_for(self, step: int) -> None:
        self._storage.read_for(step)

    def begin_anew(self) -> None:
        self._storage.begin_anew()

    def forget(self, before: int) -> None:
        self._storage.forget(before)

    def counts(self) -> Mapping[str, int]:
        return self._storage.counts()

    def seal(self, state: dict[str, Any]) -> dict[str, Any]:
        return self._storage.seal(state)

    def state_dict(self) -> dict[str, Any]:
        return self._storage.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._storage.load_state_dict(state)

    def close(self) -> None:
        self._storage.close()

    def _fetch(self) -> None:
        while count := self._storage.available():
            for row in self._storage.read(count, timeout_s=0.0):
                self._groups.setdefault(group_of(row.eid), []).append(row)


class LedgerGroupStorage(GroupStorage):
    """A storage that keeps groups itself, and is read by their names.

    Here is only which groups the next steps read; what a step has read stands in the storage.

    Args:
        storage: it.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._next: list[tuple[str, int]] = []  # groups to be read, and how much they have

    def write(self, experiences: Sequence[Experience]) -> None:
        self._storage.write(experiences)

    def take(self, groups: Sequence[str]) -> int:
        counts = dict(zip(groups, self._storage.count_groups(groups), strict=True))
        there = {name: count for name, count in counts.items() if count}
        _check_there(groups, there, held=f"{self._storage.available()} experiences wait")
        with self._lock:
            self._next += there.items()
        return sum(there.values())

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return the groups that were taken first, up to ``count`` experiences, one at least."""
        with self._lock:
            names: list[str] = []
            while self._next and (not names or self._next[0][1] <= count):
                name, size = self._next.pop(0)
                names.append(name)
                count -= size
        rows = self._storage.read_groups(names) if names else []
        if not rows:
            raise StopIteration
        return rows

    def put_back(self, experiences: Sequence[Experience]) -> None:
        self._storage.put_back(experiences)
        counts = Counter(group_of(experience.eid) for experience in experiences)
        with self._lock:
            self._next = [*counts.items(), *self._next]

    def available(self) -> int:
        with self._lock:
            return sum(count for _, count in self._next)

    def waiting(self) -> list[Experience]:
        return []


def group_storage_of(storage: Storage) -> GroupStorage:
    """Return where groups lie that go to this storage."""
    in_ledger = "groups" in abilities_in(storage, "storage")
    return LedgerGroupStorage(storage) if in_ledger else GroupStorage(storage)


def _check_there(groups: Sequence[str], there: Container[str], *, held: str) -> None:
    """Hold that all groups are there.

    Raises:
        TrinityError: one is not.
    """
    lost = next((name for name in groups if name not in there), None)
    if lost is not None:
        raise TrinityError(
            f"the next optimizer step is to train group {lost}, and the buffer does not hold it "
            f"({held}). If an experience operator changes eid.batch or eid.task, leave them as "
            f"they are; else this is a fault of the runtime: please report it with trinity.log."
        )


class GroupSink:
    """Where an explorer in this process writes, a group at a time."""

    def __init__(self, shelf: GroupStorage) -> None:
        self._shelf = shelf

    def write(self, experiences: Sequence[Experience]) -> None:
        """Store what a group left."""
        if experiences:
            self._shelf.write_group(experiences)

    def close(self) -> None:
        """Leave the shelf open."""


class _Ready:
    """What both sources have in common: what is put back is ready again."""

    def __init__(self, stored: Storage, buffer: RolloutBuffer) -> None:
        self._stored, self._buffer = stored, buffer

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Give back what was read last and not used: it is ready again."""
        self._stored.put_back(experiences)
        with self._buffer.changed:
            self._buffer.put_back(len(experiences))

    def read_for(self, step: int) -> None:
        """Tell the storage which train step reads from now on."""
        self._stored.read_for(step)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the run's checkpoint holds the buffer."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Accept the empty state."""


class ReadyGroups(_Ready):
    """A source for a sample strategy: the groups that a step took, all of them at once."""

    last = 0.0  # of rollout steps; groups are taken by name

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return all that was taken, however many were asked for.

        Raises:
            StopIteration: nothing was taken.
        """
        return self._stored.read(max(count, self.available()), timeout_s=timeout_s)

    def available(self) -> int:
        """Return how many experiences were taken and not read."""
        return self._stored.available()

    def reconcile(self) -> None:
        """Do nothing: no group is given up for its age."""


class ReadyRows(_Ready):
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
