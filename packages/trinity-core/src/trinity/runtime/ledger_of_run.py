"""Which ledger a run writes to, and as what."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trinity.common.ports import StorageUse

if TYPE_CHECKING:
    from typing import Literal

    from trinity.common.config import Config
    from trinity.runtime.record.rundir import RunDir

__all__ = ["path_of_buffer", "use_of_buffer"]

SQL = "sql"


def path_of_buffer(config: Config, *, rundir: RunDir) -> str | None:
    """Return what the experience buffer has as its path; a ledger has one in the run directory."""
    buffer = config.buffer.trainer_input.experience_buffer
    if buffer.path is None and buffer.storage_type == SQL:
        return str(rundir.buffer / "ledger.db")
    return buffer.path


def use_of_buffer(config: Config, *, rundir: RunDir) -> StorageUse:
    """Return whose run uses the experience buffer, and on which side of it."""
    root = config.checkpoint_root_dir or "."
    run = os.path.relpath(rundir.path.absolute(), os.path.abspath(root))
    side: Literal["both", "explore", "train"] = "both"
    return StorageUse(run=run, side=side)
