"""The statements of SQLite."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any, TypeVar

from trinity.errors import DataError

from trinity_ledger.database import Database
from trinity_ledger.local_disk import refuse_network
from trinity_ledger.packets import StoredPacket
from trinity_ledger.schema import TABLES, add_digests, refuse_foreign, statements
from trinity_ledger.sqlite_file import (
    Bounds,
    connect,
    refuse_computed,
    refuse_damaged,
    refuse_damaged_wal,
    transaction,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from trinity_ledger.database import NewExperience, ResultRows

T = TypeVar("T")
LOCKED_S = 60.0  # so long a transaction waits for another process's
READ_S = 10.0  # a transaction of who only looks; then "interrupted" is raised
_INSTRUCTIONS = 10_000  # of SQLite's machine, between two looks at the clock
_TYPES = {"ID": "INTEGER PRIMARY KEY AUTOINCREMENT", "BYTES": "BLOB", "FLOAT": "REAL"}
_WAITING = (
    "SELECT id, packet, place, uid FROM experience WHERE train_step IS NULL ORDER BY packet, place "
    "LIMIT ?"
)
_INSERT = (
    "INSERT INTO experience (packet, place, uid, run, step, version, reward, num_tokens) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (uid) DO NOTHING"
)
_TABLES = (
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
)
_MOST_VALUES = 500  # in one statement


class SqliteDatabase(Database):
    """A file, which any number of processes of one machine may use.

    Args:
        path: of it; its folder is made.
        max_retries: how often a transaction is made again where the file was locked too long.
        retry_interval_s: how long to wait before.
        is_read_only: whether nothing is written, the tables included.

    Raises:
        DataError: the file lies where locks do not hold.
    """

    errors = (sqlite3.Error, OSError)
    shell = "sqlite3"

    def __init__(
        self,
        path: Path,
        *,
        max_retries: int = 3,
        retry_interval_s: float = 1.0,
        is_read_only: bool = False,
    ) -> None:
        super().__init__(max_retries=max_retries, retry_interval_s=retry_interval_s)
        refuse_network(path)
        self._path, self._is_read_only = path, is_read_only

    def _connected(self) -> sqlite3.Connection:
        if self._is_read_only:
            return self._looking()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        refuse_damaged_wal(self._path)
        connection = connect(self._path, locked_s=LOCKED_S)
        try:
            refuse_foreign(_SqliteRows(connection), query=_TABLES, name=str(self._path))
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            with transaction(connection, writes=True):
                columns = connection.execute("PRAGMA table_info(packet)").fetchall()
                if columns and "digest" not in {name for _, name, *_ in columns}:
                    add_digests(_SqliteRows(connection), _TYPES)
                for statement in statements(_TYPES):
                    connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def _looking(self) -> sqlite3.Connection:
        """Return a connection of who only looks: anybody can have made the file.

        It leaves no file beside one that no run has open, and needs no right to write there.
        """
        path = self._path.resolve()  # the log lies beside what a link names
        is_used = path.with_name(f"{path.name}-wal").exists()
        address = f"{path.as_uri()}?mode=ro{'' if is_used else '&immutable=1'}"
        connection = connect(address, locked_s=LOCKED_S)
        try:
            refuse_computed(connection, name=str(self._path), tables=TABLES)
        except BaseException:
            connection.close()
            raise
        return connection

    def _transacted(self, work: Callable[[ResultRows], T], *, writes: bool, is_durable: bool) -> T:
        connection: sqlite3.Connection = self._connection
        bounds = None
        if self._is_read_only:  # a table can be long, and a query of it slow
            bounds = Bounds(name=str(self._path))
            limit = time.monotonic() + READ_S
            connection.set_progress_handler(lambda: time.monotonic() > limit, _INSTRUCTIONS)
        with transaction(connection, writes=writes, is_durable=is_durable):
            return work(_SqliteRows(connection, bounds))

    def refuse_damaged(self) -> None:
        """Hold that the tables and indices are whole."""

        def work(rows: ResultRows) -> None:
            assert isinstance(rows, _SqliteRows)
            refuse_damaged(rows.connection, name=f"the ledger {self._path}")

        self.read(work)

    def _may_pass(self, error: Exception) -> bool:
        return "locked" in str(error)

    def _failed(self, error: Exception) -> DataError:
        if self._is_read_only and str(error) == "interrupted":
            return DataError(
                f"a query of the ledger {self._path} took more than {READ_S:.0f} s. If a run wrote "
                f"it, try again when its machine has less load."
            )
        if "is not a database" in str(error) or "no such column" in str(error):
            remedy = "It is not a ledger of this version. Use a new file."
        elif "malformed" in str(error):
            remedy = "It is damaged. Restore it from a copy, then run the same command."
        elif "full" in str(error) or "No space" in str(error):
            remedy = "Free space on its disk, then run the same command; no write is incomplete."
        elif "locked" in str(error):
            remedy = (
                "End the process that locks it, then run the same command; written data is kept."
            )
        else:
            remedy = (
                "Make it readable and writable, then run the same command; written data is kept."
            )
        return DataError(f"the ledger {self._path} cannot be used: {error}. {remedy}")


class _SqliteRows:
    def __init__(self, connection: sqlite3.Connection, bounds: Bounds | None = None) -> None:
        self.connection = connection
        self._bounds = bounds  # None: the ledger is a run's own

    def all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        cursor = self.connection.execute(statement, values)
        return cursor.fetchall() if self._bounds is None else self._bounds.fetched(cursor)

    def do(self, statement: str, *values: object) -> int:
        """Return how many rows a change reached."""
        return self.connection.execute(statement, values).rowcount

    def alone(self) -> None:
        """Do nothing: who writes is alone from ``BEGIN IMMEDIATE`` on."""

    def without_writers(self) -> None:
        """Do nothing, as :meth:`alone`."""

    def insert_experiences(self, rows: Sequence[NewExperience]) -> int:
        """Return how many of these were not there already, and are now."""
        return self.connection.executemany(_INSERT, rows).rowcount

    def waiting(self, count: int) -> list[tuple[int, int, int, str]]:
        """Return the oldest that wait; nobody else writes meanwhile."""
        return self.all(_WAITING, count)

    def mark(self, ids: Sequence[int], *, step: int, first: int) -> None:
        """Note that a step trains these, in their order from the place ``first``."""
        self.connection.executemany(
            "UPDATE experience SET train_step = ?, train_place = ? WHERE id = ?",
            [(step, place, one) for place, one in enumerate(ids, start=first)],
        )

    def packets(self, ids: Iterable[int]) -> dict[int, StoredPacket]:
        """Return the packets of these ids that are there."""
        all_ids, found = list(ids), dict[int, StoredPacket]()
        for start in range(0, len(all_ids), _MOST_VALUES):
            some = all_ids[start : start + _MOST_VALUES]
            marks = ", ".join("?" * len(some))
            query = f"SELECT id, body, digest, outcome FROM packet WHERE id IN ({marks})"
            for one, *stored in self.connection.execute(query, some):
                found[one] = StoredPacket(*stored)
        return found
