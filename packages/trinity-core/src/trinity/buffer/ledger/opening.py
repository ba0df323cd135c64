"""Open the database that a path names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.buffer.ledger.postgres import PostgresDatabase
from trinity.buffer.ledger.sqlite import SqliteDatabase
from trinity.common.config.database_path import address_of

if TYPE_CHECKING:
    from pathlib import Path

    from trinity.buffer.ledger.database import Database

__all__ = ["open_database"]


def open_database(
    path: Path | str, *, max_retries: int = 3, retry_interval_s: float = 1.0
) -> Database:
    """Return the database of a path, which is opened when something is asked of it.

    Raises:
        ConfigError: the path names no database, or a package is missing.
        DataError: it lies where a ledger cannot.
    """
    address = address_of(str(path))
    if address.file is not None:
        return SqliteDatabase(
            address.file, max_retries=max_retries, retry_interval_s=retry_interval_s
        )
    return PostgresDatabase(
        address.url,
        name=address.name,
        max_retries=max_retries,
        retry_interval_s=retry_interval_s,
    )
