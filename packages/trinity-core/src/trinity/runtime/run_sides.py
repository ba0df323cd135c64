"""Which side of a run this is, where explorer and trainer may be runs of their own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trinity.common.ports import StorageUse
from trinity.errors import ConfigError
from trinity.runtime.record.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from trinity.common.config import Config


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
        ConfigError: a stage explores or trains alone, over a buffer that belongs to one run.
    """
    sides = [stage for stage in stages if stage.shares_run_directory]
    if sides and len(stages) > 1:
        raise ConfigError(_no_stage(sides[0]))
    if not sides or sides[0].mode != "explore":
        return rundir
    part = rundir.explorer(sides[0].explorer.name)
    part.create()
    return part


def use_of_buffer(config: Config, *, rundir: RunDir) -> StorageUse:
    """Return whose run uses the experience buffer, and on which side of it."""
    root = config.checkpoint_root_dir or "."
    shared = shared_part(config, rundir=rundir)
    run = os.path.relpath(shared.path.absolute(), os.path.abspath(root))
    side: Literal["both", "explore", "train"] = "both"
    if config.shares_run_directory:
        side = "train" if config.mode == "train" else "explore"
    return StorageUse(
        run=run,
        directory=shared.buffer,
        side=side,
        owner=config.explorer.name if side == "explore" else "",
        is_offline=side == "train" and not config.is_standalone,
    )


def _no_stage(config: Config) -> str:
    what = "its ledger would be another than that of the other stages, which are runs themselves"
    if config.is_standalone:
        what = "it waits for the other side, and stages follow one another"
    storage = config.buffer.trainer_input.experience_buffer.storage_type
    return (
        f"stage {config.name} is of mode {config.mode} with storage {storage}: {what}. Make each "
        f"side a run of its own."
    )
