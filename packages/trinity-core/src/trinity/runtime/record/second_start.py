"""What a second start of a stage finds: how it ended, and whether there is more to do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trinity.common.sync_policy import Consume
from trinity.errors import CheckpointError
from trinity.runtime.record.checkpoint import CheckpointStore
from trinity.runtime.record.manifest import check_model
from trinity.runtime.record.plots import draw_plots
from trinity.runtime.record.result import RunStatus, StageResult

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.explorer.rollout_buffer import RolloutBuffer
    from trinity.runtime.display import Display
    from trinity.runtime.record.rundir import RunDir

logger = logging.getLogger(__name__)


def read_before(config: Config, *, rundir: RunDir) -> dict[str, Any]:
    """Return ``run.json`` of the start before; empty if there was none in this mode (Any: json)."""
    before = rundir.read_status(mode=config.mode)
    if config.mode == "bench" or before.get("mode") != config.mode:
        return {}  # what another mode did is no part of this one
    return before


def is_finished(config: Config, before: dict[str, Any]) -> bool:
    """Return whether the stage is done, and no longer a way is asked of it now."""
    if before.get("status") != RunStatus.FINISHED.value:
        return False
    limit = config.trainer.total_steps
    is_at_limit = limit is not None and before["train_steps"] >= limit
    return before["asked"] == settings_of(config) or is_at_limit


def settings_of(config: Config) -> list[int | None]:
    """Return what sets the length of a run."""
    return [config.buffer.total_epochs, config.buffer.total_steps, config.trainer.total_steps]


def finished_before(
    before: dict[str, Any], *, rundir: RunDir, display: Display, stage: str
) -> StageResult:
    """Say that the stage is finished and return how it ended then.

    Raises:
        CheckpointError: the model that it left is damaged.
    """
    latest = CheckpointStore(rundir.path).latest()
    if latest is not None:
        check_model(latest.huggingface)
    display.say(f"{rundir.path} is finished: {_evaluation_line(before['evaluation'])}")
    return StageResult(
        name=stage,
        status=RunStatus.FINISHED,
        directory=rundir.path,
        explore_steps=before["explore_steps"],
        train_steps=before["train_steps"],
        seconds=before["seconds"],
        first_evaluation=before["first_evaluation"],
        evaluation=before["evaluation"],
        buffer=before.get("buffer", {}),
        checkpoint=latest.path if latest else None,
        plots=tuple(sorted(rundir.plots.glob("*.png"))),
        was_finished_before=True,
    )


def plots_of(rundir: RunDir, *, title: str) -> tuple[Path, ...]:
    """Draw the plots of a stage and return where they are; say why where that cannot be."""
    try:
        return tuple(draw_plots(rundir.monitor, rundir.plots, title=title))
    except (CheckpointError, OSError) as error:
        logger.warning("there are no plots: %s", error)
        return ()


def check_style(rollouts: Mapping[str, Any] | None, now: RolloutBuffer, *, place: Path) -> None:
    """Refuse to go on in a style that has no place for what was on its way.

    Args:
        rollouts: the state of the rollout buffer in the checkpoint (Any: json); None: no state.
        now: the rollout buffer that would hold it.
        place: where the state lies.

    Raises:
        CheckpointError: groups began one by one then, or do now; or their numbers mean others now.
    """
    groups = Consume.GROUPS.value
    size_then = rollouts["batch"] if rollouts and rollouts["consume"] == groups else None
    size_now = now.batch if now.policy.in_groups else None
    if size_then == size_now:
        return
    if size_then is not None and size_now is not None:
        key, then, now_is = "buffer.batch_size", str(size_then), str(size_now)
    else:
        styles = ("fully_async", "another")
        then, now_is = styles if size_then is not None else styles[::-1]
        key = "synchronizer.sync_style"
    raise CheckpointError(
        f"{place} was made with {key} {then}, and now it is {now_is}: what was "
        f"explored and not trained would be lost. Set it back; or set another name, and "
        f"model.model_path to the checkpoint's actor/huggingface, to begin anew from that model."
    )


def _evaluation_line(metrics: dict[str, float]) -> str:
    rewards = {name: value for name, value in metrics.items() if "/reward/mean@" in name}
    return ", ".join(f"{name} {value:.3f}" for name, value in rewards.items()) or "no evaluation"
