"""Where the ledger of a run lies, and the id of the run directory that it belongs to."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from trinity.errors import ConfigError

from trinity_ledger.address import address_of
from trinity_ledger.ledger import Ledger
from trinity_ledger.opening import open_database

if TYPE_CHECKING:
    from pathlib import Path

    from trinity.common.config import ExperienceBufferConfig
    from trinity.common.ports import StorageUse

    from trinity_ledger.database import Database

_ID = "ledger.id"
_WRITTEN_S = 10.0  # so long another process may take to write an id


def path_of(path: Path | str | None, *, use: StorageUse | None) -> str:
    """Return the path of a ledger: what is written, or else a file in the run directory."""
    if path or use is None or use.directory is None:
        return str(path or "")
    return str(use.directory / "ledger.db")


def database_of(config: ExperienceBufferConfig, *, path: str) -> Database:
    """Return a connection of its own to a ledger, which opens when it is used.

    Args:
        config: the section of the buffer: how often a transaction is made again.
        path: of the ledger.
    """
    return open_database(
        path, max_retries=config.max_retry_times, retry_interval_s=config.max_retry_interval
    )


def ledger_of(database: Database, *, path: str, use: StorageUse) -> Ledger:
    """Return the ledger in a database, once it is this run's.

    Raises:
        ConfigError: it is another run's, or the id of the run directory is damaged.
    """
    run_id = "" if use.directory is None else _id_in(use.directory)
    name = address_of(path).name
    return Ledger(database, name=name, run=use.run, run_id=run_id, owner=use.owner)


def _id_in(folder: Path) -> str:
    """Return the id that a folder of a run directory has, or now gets; all sides see one."""
    path = folder / _ID
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="ascii") as file:
            file.write(secrets.token_hex(16))
    except FileExistsError:
        limit = time.monotonic() + _WRITTEN_S
        while not path.read_bytes() and time.monotonic() < limit:
            time.sleep(0.05)
    found = path.read_text(encoding="ascii", errors="replace").strip()
    if not found:
        raise ConfigError(
            f"{path} is empty: a process was killed when it wrote it. Remove it, then run the same "
            f"command."
        )
    return found
