"""What a second start of a stage finds: how it ended, and whether there is more to do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trinity.errors import CheckpointError
from trinity.runtime.record.checkpoint import CheckpointStore
from trinity.runtime.record.manifest import check_model
from trinity.runtime.record.plots import draw_plots
from trinity.runtime.record.result import RunStatus, StageResult

if TYPE_CHECKING:
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.runtime.display import Display
    from trinity.runtime.record.rundir import RunDir

__all__ = [
    "check_style",
    "finished_before",
    "is_finished",
    "plots_of",
    "read_before",
    "settings_of",
]

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


def check_style(state: dict[str, Any], *, batch_size_in_flight: int | None, place: Path) -> None:
    """Refuse to go on in a style that has no place for what was on its way (Any: json).

    Args:
        state: of the checkpoint.
        batch_size_in_flight: of a run whose groups begin one by one; None: they do not now.
        place: where the state lies.

    Raises:
        CheckpointError: they did not then, or did; or their numbers mean other groups now.
    """
    flight: dict[str, Any] | None = state["explorer"].get("flight")
    size_then = flight["batch_size"] if flight is not None else None
    if size_then == batch_size_in_flight:
        return
    if flight is not None and batch_size_in_flight is not None:
        key, then, now = "buffer.batch_size", str(size_then), str(batch_size_in_flight)
    else:
        styles = ("fully_async", "another")
        then, now = styles if flight is not None else styles[::-1]
        key = "synchronizer.sync_style"
    raise CheckpointError(
        f"{place} was made with {key} {then}, and now it is {now}: what was "
        f"explored and not trained would be lost. Set it back; or set another name, and "
        f"model.model_path to the checkpoint's actor/huggingface, to begin anew from that model."
    )


def _evaluation_line(metrics: dict[str, float]) -> str:
    rewards = {name: value for name, value in metrics.items() if "/reward/mean@" in name}
    return ", ".join(f"{name} {value:.3f}" for name, value in rewards.items()) or "no evaluation"
