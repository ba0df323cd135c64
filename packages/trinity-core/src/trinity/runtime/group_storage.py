"""Where groups lie that begin and end one by one, until a train step takes them.

A storage that is read by the names of groups keeps them itself (:class:`LedgerGroupStorage`).
Another one gives out what was written first, so its groups are held in memory.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from trinity.common.ports import Storage
from trinity.errors import PluginError, TrinityError
from trinity.explorer.rollout_buffer import group_of
from trinity.runtime.plugin_adapter import abilities_in

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from trinity.common.experience import Experience


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
        if experiences:
            self._shelf.write_group(experiences)

    def close(self) -> None:
        """Leave the shelf open."""
