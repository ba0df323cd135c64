"""A file of SQLite that another process may be writing to, read and never changed."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["opened", "told"]

_WAIT_S = 0.5
_READ_S = 10.0  # from the opening on; then "interrupted" is raised
_INSTRUCTIONS = 10_000  # of SQLite's machine, between two looks at the clock


def opened(path: Path) -> sqlite3.Connection:
    """Return a connection that cannot write, and leaves no file beside one that is at rest.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    path = path.resolve()  # the log of what is not in the file yet lies beside what a link names
    is_used = path.with_name(f"{path.name}-wal").exists()
    how = "mode=ro" if is_used else "mode=ro&immutable=1"
    address = f"file:{quote(str(path.absolute()))}?{how}"
    file = sqlite3.connect(address, uri=True, timeout=_WAIT_S)
    limit = time.monotonic() + _READ_S
    file.set_progress_handler(lambda: time.monotonic() > limit, _INSTRUCTIONS)
    return file


def told(error: Exception) -> str:
    """Return what went wrong, in one line; SQLite says of a query that was ended only that."""
    if isinstance(error, sqlite3.OperationalError) and str(error) == "interrupted":
        return f"a query took more than {_READ_S:.0f} s, and was ended"
    return " ".join(str(error).split())
