"""What follows for the run as a whole: its folder, its intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from trinity.common.config.resolution import Resolution

__all__ = ["resolve_run"]

CHECKPOINT_ROOT = "./checkpoints"


def resolve_run(work: Resolution) -> None:
    """Fill in the folder of the run, its namespace and the sync intervals of both sides."""
    config = work.config
    if not config.checkpoint_root_dir:
        work.fill("checkpoint_root_dir", CHECKPOINT_ROOT, origin="default")
    if not config.ray_namespace:
        parts = [part for part in (config.project, config.group, config.name) if part]
        work.fill("ray_namespace", "/".join(parts), origin="project/group/name")
    if config.shares_run_directory and config.mode == "explore":
        _draw_by_name(work)
    for side in ("explorer_sync_interval", "trainer_sync_interval"):
        work.default(
            f"synchronizer.{side}",
            config.synchronizer.sync_interval,
            origin="synchronizer.sync_interval",
        )
    work.default("explorer.rollout_model.seed", config.seed, origin="seed")


def _draw_by_name(work: Resolution) -> None:
    """Let explorers of one run that differ in their names draw other tasks and other answers."""
    name = work.config.explorer.name
    if name != "explorer":
        seed = (work.config.seed + crc32(name.encode())) % 2**31
        work.fill("seed", seed, origin="seed and explorer.name")
