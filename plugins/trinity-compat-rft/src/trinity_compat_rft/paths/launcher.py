"""``trinity.cli.launcher``: start a run from Python, as AgentScope's tuner does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trinity

if TYPE_CHECKING:
    from trinity.common.config import Config

__all__ = ["StageStatus", "run_stage"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStatus:
    """How a run ended; one that failed raises instead."""

    stage: str  # its mode
    success: bool  # False: it was interrupted
    total_time_sec: float


def run_stage(config: Config) -> StageStatus:
    """Run a configuration, over Ray, from the first task to the last checkpoint.

    Args:
        config: as it was loaded, or as ``config.check_and_update()`` returned it.

    Raises:
        ConfigError: it cannot be run as written; nothing was started.
        TrinityError: a part failed on the way; what was trained is saved.
    """
    result = trinity.run(config)
    return StageStatus(
        stage=config.mode,
        success=result.exit_code == 0,
        total_time_sec=sum(stage.seconds for stage in result.stages),
    )
