"""What follows for the run as a whole: its folder, its intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    for side in ("explorer_sync_interval", "trainer_sync_interval"):
        work.default(
            f"synchronizer.{side}",
            config.synchronizer.sync_interval,
            origin="synchronizer.sync_interval",
        )
    work.default("explorer.rollout_model.seed", config.seed, origin="seed")
