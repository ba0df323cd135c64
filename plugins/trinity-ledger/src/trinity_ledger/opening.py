"""Open the database that a path names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity_ledger.address import address_of

if TYPE_CHECKING:
    from pathlib import Path

    from trinity_ledger.database import Database


def open_database(
    path: Path | str,
    *,
    max_retries: int = 3,
    retry_interval_s: float = 1.0,
    is_read_only: bool = False,
) -> Database:
    """Return the database of a path, which is opened when something is asked of it.

    Args:
        path: a file or a URL; see ``address_of``.
        max_retries: how often a transaction that failed by chance is made again.
        retry_interval_s: how long to wait before.
        is_read_only: whether only :meth:`Database.read` is called; no table is made then.

    Raises:
        ConfigError: the path names no database, or a package is missing.
        DataError: it lies where a ledger cannot.
    """
    address = address_of(str(path))
    if address.file is not None:
        from trinity_ledger.sqlite import SqliteDatabase

        return SqliteDatabase(
            address.file,
            max_retries=max_retries,
            retry_interval_s=retry_interval_s,
            is_read_only=is_read_only,
        )
    from trinity_ledger.postgres import PostgresDatabase

    return PostgresDatabase(
        address.url,
        name=address.name,
        max_retries=max_retries,
        retry_interval_s=retry_interval_s,
        is_read_only=is_read_only,
    )
