"""Open a file of SQLite, write to it whole or not at all, and guard what is read of it.

A file on a network's file system is refused: locks do not hold there. Of a file that anybody can
have made, only stored tables are read, and so much of them: a view can have rows without end, and a
computed column bytes without end, in a file of a kilobyte.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "lustre", "afs", "glusterfs")
LOCKED_S = 5.0
READ_BYTES = 512 << 20  # of all rows that are held at once
_KIND, _HIDDEN = 2, 6  # columns of SQLite's table_list and table_xinfo


def connect(path: Path | str, *, locked_s: float = LOCKED_S) -> sqlite3.Connection:
    """Return a connection of any thread, whose transactions are begun and ended by hand.

    Args:
        path: of the file, or an address (``file:...?mode=ro``) of one that is only read.
        locked_s: so long a transaction waits for another process's.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    is_address = isinstance(path, str)
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=locked_s, uri=is_address
    )


@contextmanager
def transaction(
    connection: sqlite3.Connection, *, writes: bool, is_durable: bool = False
) -> Iterator[None]:
    """Do all that is inside, or nothing of it.

    Args:
        connection: with ``synchronous = NORMAL``.
        writes: nobody else writes meanwhile.
        is_durable: whether it, and all before it, is on the disk afterwards.

    Raises:
        sqlite3.Error: it cannot be done.
    """
    if is_durable:
        connection.execute("PRAGMA synchronous = FULL")
    try:
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if is_durable:
            connection.execute("PRAGMA synchronous = NORMAL")


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


def refuse_computed(connection: sqlite3.Connection, *, name: str, tables: Iterable[str]) -> None:
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


def refuse_damaged(connection: sqlite3.Connection, *, name: str) -> None:
    """Hold that the pages of a file fit together, and each row stands in every index of it.

    Reads the whole file: a row that a flipped bit hides is missing nowhere else.

    Raises:
        DataError: they do not.
        sqlite3.Error: the file cannot be read.
    """
    found = [str(text) for (text,) in connection.execute("PRAGMA integrity_check(3)")]
    if found != ["ok"]:
        raise DataError(
            f"{name} is damaged: {'; '.join(' '.join(one.split()) for one in found)[:400]}. "
            f"Nothing of it was used. Restore it from a copy."
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
