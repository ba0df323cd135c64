"""A file of SQLite that another process may be writing to, read and never changed."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from trinity_ledger.sqlite_file import refuse_computed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["opened", "told"]

_WAIT_S = 0.5
_READ_S = 10.0  # from the opening on; then "interrupted" is raised
_INSTRUCTIONS = 10_000  # of SQLite's machine, between two looks at the clock


def opened(path: Path, *, tables: Iterable[str]) -> sqlite3.Connection:
    """Return a connection that cannot write, and leaves no file beside one that is at rest.

    Args:
        path: of the file.
        tables: that are read.

    Raises:
        sqlite3.Error: it cannot be opened.
        DataError: a table is computed as it is read, and may have no end.
    """
    path = path.resolve()  # the log of what is not in the file yet lies beside what a link names
    is_used = path.with_name(f"{path.name}-wal").exists()
    how = "mode=ro" if is_used else "mode=ro&immutable=1"
    address = f"file:{quote(str(path.absolute()))}?{how}"
    file = sqlite3.connect(address, uri=True, timeout=_WAIT_S)
    limit = time.monotonic() + _READ_S
    file.set_progress_handler(lambda: time.monotonic() > limit, _INSTRUCTIONS)
    try:
        refuse_computed(file, name=str(path), tables=tables)
    except BaseException:
        file.close()
        raise
    return file


def told(error: Exception) -> str:
    """Return what went wrong, in one line; SQLite says of a query that was ended only that."""
    if isinstance(error, sqlite3.OperationalError) and str(error) == "interrupted":
        return f"a query took more than {_READ_S:.0f} s, and was ended"
    return " ".join(str(error).split())
