"""Open a file of SQLite, write to it whole or not at all, and guard what is read of it.

Of a file that anybody can have made, only stored tables are read, and so much of them: a view can
have rows without end, and a computed column bytes without end, in a file of a kilobyte.

    -wal | header | frame frame frame(commits) frame frame(commits) | frames of before

The last commits of a killed process are in the ``-wal`` file. SQLite reads it up to the first frame
that is not as it was written, and takes what follows for old.
"""

from __future__ import annotations

import logging
import sqlite3
import struct
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

logger = logging.getLogger("trinity.ledger")

LOCKED_S = 5.0
AGAIN_S = 0.2  # until a -wal file that looks damaged is read again
READ_BYTES = 512 << 20  # of all rows that are held at once
_MAGIC, _HEADER, _FRAME = 0x377F0682, 32, 24  # of a -wal file; bytes of its header, of a frame's
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


def refuse_damaged_wal(path: Path) -> None:
    """Hold that SQLite reads all commits that the ``-wal`` file of a killed process has.

    Of its last frame nobody can tell whether it is damaged, or was cut off: that is logged.

    Args:
        path: of the database, before it is opened.

    Raises:
        DataError: it would pass over some.
        OSError: the file cannot be read.
    """
    wal = path.with_name(f"{path.name}-wal")
    if not wal.exists() or not (number := wal_damage(wal.read_bytes())):
        return
    time.sleep(AGAIN_S)  # another process may have written meanwhile
    if not wal.exists() or wal_damage(wal.read_bytes()) != number:
        return
    if number < 0:
        logger.warning(
            "%s ends with a commit that a kill cut off, or that is damaged. It is not used.", wal
        )
    else:
        raise DataError(
            f"{wal} is damaged at frame {number}: SQLite would pass over the commits from there "
            f"on. Restore both files from a copy. To go on without these commits: "
            f'sqlite3 {path} "PRAGMA wal_checkpoint(TRUNCATE)"'
        )


def wal_damage(data: bytes) -> int:
    """Return the number of the frame that was changed after it was written, from 1; 0: none was.

    A frame carries the checksum of all up to it. One that does not fit has been changed if one
    after it fits what stands there. As the last one it may have been cut off: its number is < 0.
    """
    if len(data) <= _HEADER:
        return 0
    magic, _, size, _, *fields = struct.unpack_from(">8I", data)
    salts, before = fields[:2], (fields[2], fields[3])
    order, odd = ">" if magic & 1 else "<", 0
    if magic & ~1 != _MAGIC or _checksum(data[: _HEADER - 8], (0, 0), order) != before:
        return 1
    for number, start in enumerate(range(_HEADER, len(data) - size - _FRAME + 1, size + _FRAME), 1):
        *own, first, second = struct.unpack_from(">4I", data, start + 8)
        page = data[start + _FRAME : start + _FRAME + size]
        fits = _checksum(data[start : start + 8] + page, before, order) == (first, second)
        if fits and (odd or own != salts):
            return odd or number
        if own != salts:  # this frame, and all after it, are of before
            break
        odd, before = odd or (0 if fits else number), (first, second)
    return -odd


def _checksum(data: bytes, before: tuple[int, int], order: str) -> tuple[int, int]:
    one, two = before
    for first, second in struct.iter_unpack(f"{order}2I", data):
        one = one + first + two & 0xFFFFFFFF
        two = two + second + one & 0xFFFFFFFF
    return one, two
