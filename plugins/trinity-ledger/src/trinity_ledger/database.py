"""A database: transactions that are done whole or not at all, tried again where that can help."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trinity.errors import DataError

    from trinity_ledger.packets import StoredPacket

T = TypeVar("T")
# packet, place, uid, run, step, version, reward, num_tokens
NewExperience = tuple[int, int, str, int, int, int, float | None, int]


class ResultRows(Protocol):
    """What a transaction may do; statements have ``?`` where values come."""

    def all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query (Any: as the columns are)."""

    def do(self, statement: str, *values: object) -> int:
        """Return how many rows a change reached."""

    def alone(self) -> None:
        """Let no other transaction that asks for this go on before this one ends."""

    def without_writers(self) -> None:
        """Let nobody write experiences before this transaction ends; wait for who does."""

    def insert_experiences(self, rows: Sequence[NewExperience]) -> int:
        """Return how many of these were not there already, and are now."""

    def waiting(self, count: int) -> list[tuple[int, int, int, str]]:
        """Return id, packet, place and uid of the oldest that wait; keep others from them."""

    def mark(self, ids: Sequence[int], *, step: int, first: int) -> None:
        """Note that a step trains these, in their order from the place ``first``."""

    def packets(self, ids: Iterable[int]) -> dict[int, StoredPacket]:
        """Return the packets of these ids that are there."""


class Database(ABC):
    """What SQLite and PostgreSQL have in common.

    Args:
        max_retries: how often a transaction that failed by chance is made again.
        retry_interval_s: how long to wait before.
    """

    errors: tuple[type[Exception], ...] = ()
    shell = ""  # the program in which a person gives it statements
    may_forget = False  # whether it can lose its last commits while the processes of a run live

    def __init__(self, *, max_retries: int, retry_interval_s: float) -> None:
        self._max_retries = max_retries
        self._retry_interval_s = retry_interval_s
        self._lock = threading.RLock()
        self._connection: Any = None  # Any: the driver's; None: nobody asked anything yet

    def read(self, work: Callable[[ResultRows], T]) -> T:
        """Return what ``work`` reads; see :meth:`write`."""
        return self._done(work, writes=False, is_durable=False)

    def write(self, work: Callable[[ResultRows], T], *, is_durable: bool = False) -> T:
        """Do all that ``work`` does, or nothing of it; it may be called again.

        Args:
            work: does it.
            is_durable: whether it, and all before it, is on the disk afterwards.

        Raises:
            DataError: the database cannot be used.
        """
        return self._done(work, writes=True, is_durable=is_durable)

    def close(self) -> None:
        """Let the connection go; the next transaction makes another."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _done(self, work: Callable[[ResultRows], T], *, writes: bool, is_durable: bool) -> T:
        num_tried = 0
        while True:
            try:
                with self._lock:
                    if self._connection is None:
                        self._connection = self._connected()
                    return self._transacted(work, writes=writes, is_durable=is_durable)
            except self.errors as error:
                self._forget()
                num_tried += 1
                if num_tried > self._max_retries or not self._may_pass(error):
                    raise self._failed(error) from error
            time.sleep(self._retry_interval_s)

    def _forget(self) -> None:
        try:
            self.close()
        except self.errors:
            return

    @abstractmethod
    def refuse_damaged(self) -> None:
        """Hold that the tables and indices are whole.

        Raises:
            DataError: they are not.
        """

    @abstractmethod
    def _connected(self) -> Any:
        """Return a connection to a database that has the tables."""

    @abstractmethod
    def _transacted(self, work: Callable[[ResultRows], T], *, writes: bool, is_durable: bool) -> T:
        """Return what the work gives, once all of it or nothing is written."""

    @abstractmethod
    def _may_pass(self, error: Exception) -> bool:
        """Return whether what failed may work a second later."""

    @abstractmethod
    def _failed(self, error: Exception) -> DataError:
        """Return what a person is told of a failure that stays."""
