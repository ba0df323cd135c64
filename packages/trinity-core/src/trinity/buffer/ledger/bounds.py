"""Bounds for who reads a ledger that anybody can have made: stored tables, and so much of them.

A view can have rows without end, and a computed column bytes without end, in a file of a kilobyte.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from trinity.buffer.ledger.schema import TABLES
from trinity.errors import DataError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

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
                f"the ledger {name} is left out, for no run writes one like it: {table} is {what}, "
                f"and what is computed may have no end. Name a ledger whose tables are stored."
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
                    f"the ledger {self._name} is left out: what is read of it at once holds more "
                    f"than {READ_BYTES >> 20} MB. If it is a run's own, look at fewer experiences."
                )
            rows.append(row)
        return rows
