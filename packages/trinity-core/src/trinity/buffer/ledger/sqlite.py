"""The statements of SQLite, and bounds for a file that anybody can have made.

A view can have rows without end, and a computed column bytes without end, in a file of a kilobyte.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trinity.buffer.ledger.database import Database
from trinity.buffer.ledger.schema import TABLES, refuse_foreign, statements
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trinity.buffer.ledger.database import NewExperience, ResultRows


READ_BYTES = 512 << 20  # of all rows that are held at once
_KIND, _HIDDEN = 2, 6  # columns of SQLite's table_list and table_xinfo


def refuse_computed(
    connection: sqlite3.Connection, *, name: str, tables: Iterable[str] = TABLES
) -> None:
    """Hold that the tables of a ledger lie in its file, and are not computed as they are read.

    Args:
        connection: to the ledger.
        name: of the ledger, for the message.
        tables: that are read; the file need not have them.

    Raises:
        DataError: one is a view or of a virtual module, or has a computed column.
        sqlite3.Error: the file cannot be read.
    """
    for table in sorted(tables):
        kinds = {row[_KIND] for row in connection.execute(f"PRAGMA table_list({table})")}
        columns = connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
        odd = next(iter(kinds - {"table"}), "")
        if odd or any(column[_HIDDEN] for column in columns):
            what = f"a {odd} table".replace("view table", "view") if odd else "partly computed"
            raise DataError(
                f"refusing the ledger {name}: {table} is {what}, no run writes such a table, and "
                f"computing it may never end. Name a ledger with stored tables."
            )


class Bounds:
    """What may still be fetched; of one page, or of one answer.

    Args:
        name: of the ledger, for the message.
    """

    def __init__(self, *, name: str) -> None:
        self._name = name
        self._left = READ_BYTES

    def fetched(self, cursor: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the rows of a cursor (Any: as the columns are).

        Raises:
            DataError: with those that were fetched before, they hold too much.
        """
        rows = []
        for row in cursor:
            self._left -= sys.getsizeof(row) + sum(map(sys.getsizeof, row))
            if self._left < 0:
                raise DataError(
                    f"refusing the ledger {self._name}: one query returned more than "
                    f"{READ_BYTES >> 20} MB. If a run wrote it, look at fewer experiences."
                )
            rows.append(row)
        return rows


_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "lustre", "afs", "glusterfs")


def refuse_network(path: Path, *, mounts: Path = _MOUNTS) -> None:
    """Raise where the locks of SQLite do not hold.

    Raises:
        DataError: the file lies on a network's file system, or on one of a user's process.
    """
    kind = file_system_of(path, mounts=mounts)
    if kind.startswith(_NETWORK):
        raise DataError(
            f"{path} lies on {kind}, and SQLite locks do not hold on {kind}. Use PostgreSQL "
            f"(postgresql://USER@HOST/NAME) or a path on a local disk."
        )


def file_system_of(path: Path, *, mounts: Path = _MOUNTS) -> str:
    """Return the type of a path's file system; "" where the system does not tell."""
    try:
        lines = mounts.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    target, longest, kind = path.absolute().resolve(), -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = Path(before.split()[4].replace("\\040", " "))
        if target.is_relative_to(mount) and len(mount.parts) >= longest:
            longest, kind = len(mount.parts), after.split()[0]
    return kind


T = TypeVar("T")
LOCKED_S = 60.0  # so long a transaction waits for another process's
READ_S = 10.0  # a transaction of who only looks; then "interrupted" is raised
_INSTRUCTIONS = 10_000  # of SQLite's machine, between two looks at the clock
_TYPES = {"ID": "INTEGER PRIMARY KEY AUTOINCREMENT", "BYTES": "BLOB", "FLOAT": "REAL"}
_WAITING = (
    "SELECT id, packet, place FROM experience WHERE train_step IS NULL ORDER BY packet, place "
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
        connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, timeout=LOCKED_S
        )
        try:
            refuse_foreign(_SqliteRows(connection), query=_TABLES, name=str(self._path))
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements(_TYPES):
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _looking(self) -> sqlite3.Connection:
        """Return a connection of who only looks: anybody can have made the file."""
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=ro",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=LOCKED_S,
        )
        try:
            refuse_computed(connection, name=str(self._path))
        except BaseException:
            connection.close()
            raise
        return connection

    def _transacted(self, work: Callable[[ResultRows], T], *, writes: bool, is_durable: bool) -> T:
        connection: sqlite3.Connection = self._connection
        if is_durable:
            connection.execute("PRAGMA synchronous = FULL")
        bounds = None
        if self._is_read_only:  # a table can be long, and a query of it slow
            bounds = Bounds(name=str(self._path))
            limit = time.monotonic() + READ_S
            connection.set_progress_handler(lambda: time.monotonic() > limit, _INSTRUCTIONS)
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            result = work(_SqliteRows(connection, bounds))
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if is_durable:
                connection.execute("PRAGMA synchronous = NORMAL")
        return result

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
        self._connection = connection
        self._bounds = bounds  # None: the ledger is a run's own

    def all(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        cursor = self._connection.execute(statement, values)
        return cursor.fetchall() if self._bounds is None else self._bounds.fetched(cursor)

    def do(self, statement: str, *values: object) -> int:
        """Return how many rows a change reached."""
        return self._connection.execute(statement, values).rowcount

    def alone(self) -> None:
        """Do nothing: who writes is alone from ``BEGIN IMMEDIATE`` on."""

    def insert_experiences(self, rows: Sequence[NewExperience]) -> int:
        """Return how many of these were not there already, and are now."""
        return self._connection.executemany(_INSERT, rows).rowcount

    def waiting(self, count: int) -> list[tuple[int, int, int]]:
        """Return id, packet and place of the oldest that wait; nobody else writes meanwhile."""
        return self.all(_WAITING, count)

    def mark(self, ids: Sequence[int], *, step: int, first: int) -> None:
        """Note that a step trains these, in their order from the place ``first``."""
        self._connection.executemany(
            "UPDATE experience SET train_step = ?, train_place = ? WHERE id = ?",
            [(step, place, one) for place, one in enumerate(ids, start=first)],
        )

    def bodies(self, packets: Iterable[int]) -> dict[int, bytes | None]:
        """Return the bodies of packets; None: it was deleted."""
        ids, found = list(packets), dict[int, bytes | None]()
        for start in range(0, len(ids), _MOST_VALUES):
            some = ids[start : start + _MOST_VALUES]
            marks = ", ".join("?" * len(some))
            query = f"SELECT id, body FROM packet WHERE id IN ({marks})"
            found.update(self._connection.execute(query, some).fetchall())
        return found
