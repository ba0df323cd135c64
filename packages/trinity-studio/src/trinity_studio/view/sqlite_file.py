"""A file of SQLite that another process may be writing to, read and never changed."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["opened"]

_WAIT_S = 0.5


def opened(path: Path) -> sqlite3.Connection:
    """Return a connection that cannot write, and leaves no file beside one that is at rest.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    path = path.resolve()  # the log of what is not in the file yet lies beside what a link names
    is_used = path.with_name(f"{path.name}-wal").exists()
    how = "mode=ro" if is_used else "mode=ro&immutable=1"
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", uri=True, timeout=_WAIT_S)
