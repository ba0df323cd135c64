"""Which ledger a run writes to, and as what."""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING

from trinity.buffer.ledger.opening import open_database
from trinity.common.ports import StorageUse
from trinity.errors import ConfigError
from trinity.runtime.record.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Literal

    from trinity.buffer.ledger.database import Database
    from trinity.common.config import Config

SQL = "sql"
_ID = "ledger.id"
_WRITTEN_S = 10.0  # so long another process may take to write an id


def part_of(config: Config) -> str:
    """Return which part of a run directory a run holds; "": all of it."""
    if not config.shares_run_directory:
        return ""
    return "trainer" if config.mode == "train" else config.explorer.name


def shared_part(config: Config, *, rundir: RunDir) -> RunDir:
    """Return the run directory that all its runs know, of the part that this one writes to."""
    if config.shares_run_directory and config.mode == "explore":
        return RunDir(rundir.path.parent.parent)
    return rundir


def own_part(stages: Sequence[Config], *, rundir: RunDir) -> RunDir:
    """Return where a run writes: its run directory, or an explorer's part of it, which is made.

    Raises:
        ConfigError: a stage explores or trains alone, over a ledger, which belongs to one run.
    """
    sides = [stage for stage in stages if stage.shares_run_directory]
    if sides and len(stages) > 1:
        raise ConfigError(_no_stage(sides[0]))
    if not sides or sides[0].mode != "explore":
        return rundir
    part = rundir.explorer(sides[0].explorer.name)
    part.create()
    return part


def path_of_buffer(config: Config, *, rundir: RunDir) -> str | None:
    """Return what the experience buffer has as its path; a ledger has one in the run directory."""
    buffer = config.buffer.trainer_input.experience_buffer
    if buffer.path is None and buffer.storage_type == SQL:
        return str(shared_part(config, rundir=rundir).buffer / "ledger.db")
    return buffer.path


def use_of_buffer(config: Config, *, rundir: RunDir) -> StorageUse:
    """Return whose run uses the experience buffer, and on which side of it.

    Raises:
        ConfigError: the id of the run directory is damaged.
    """
    root = config.checkpoint_root_dir or "."
    shared = shared_part(config, rundir=rundir)
    run = os.path.relpath(shared.path.absolute(), os.path.abspath(root))
    side: Literal["both", "explore", "train"] = "both"
    if config.shares_run_directory:
        side = "train" if config.mode == "train" else "explore"
    owner = config.explorer.name if side == "explore" else ""
    is_ledger = config.buffer.trainer_input.experience_buffer.storage_type == SQL
    own_id = _id_in(shared.buffer) if is_ledger else ""
    is_offline = side == "train" and not config.is_standalone
    return StorageUse(run=run, id=own_id, side=side, owner=owner, is_offline=is_offline)


def database_of(config: Config, *, rundir: RunDir) -> Database:
    """Return a connection of its own to the ledger of a run, which opens when it is used."""
    buffer = config.buffer.trainer_input.experience_buffer
    return open_database(
        str(path_of_buffer(config, rundir=rundir)),
        max_retries=buffer.max_retry_times,
        retry_interval_s=buffer.max_retry_interval,
    )


def _no_stage(config: Config) -> str:
    what = "its ledger would be another than that of the other stages, which are runs themselves"
    if config.is_standalone:
        what = "it waits for the other side, and stages follow one another"
    return (
        f"stage {config.name} is of mode {config.mode} with storage sql: {what}. Make each side a "
        f"run of its own."
    )


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
