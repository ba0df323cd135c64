"""A second start of a stage: how it ended, whether there is more to do, which settings changed.

``config.yaml`` says what the settings were; ``starts.jsonl`` notes each start for people.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trinity.common.config.kept import changed_settings
from trinity.common.secret_names import MASK
from trinity.common.secrets import masked_setting
from trinity.common.sync_policy import Consume
from trinity.errors import CheckpointError
from trinity.monitor.jsonl import append_whole
from trinity.runtime.record.checkpoint import FROM_MODEL, CheckpointStore, check_model
from trinity.runtime.record.plots import draw_plots
from trinity.runtime.record.result import RunStatus, StageResult

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.explorer.rollout_buffer import RolloutBuffer
    from trinity.extend import PluginManager
    from trinity.runtime.display import Display
    from trinity.runtime.record.rundir import RunDir

logger = logging.getLogger(__name__)

Change = tuple[str, Any, Any]  # path, then, now (Any: yaml)
MAX_SHOWN = 5
# Asked anew each time: how long the run is, and what it does with the folder.
ASKED = {"buffer.total_epochs", "buffer.total_steps", "trainer.total_steps", "mode"}
NOT_SHOWN = "(not shown)"
ADDRESS = " at 0x"  # the repr of an object, which no two processes share
_STARTS = "starts.jsonl"


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
    limit, length = config.trainer.total_steps, config.buffer.total_steps
    is_at_limit = limit is not None and before["train_steps"] >= limit
    is_shorter = limit == before["asked"][-1] and 0 < (length or 0) <= before["explore_steps"]
    return before["asked"] == settings_of(config) or is_at_limit or is_shorter


def settings_of(config: Config) -> list[int | None]:
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
        best=tuple((value, step) for value, step in before.get("best", ())),
        better_before=before.get("better_before"),
        failed_attempts=before.get("failed_attempts", 0),
        first_failure=before.get("first_failure", ""),
        plots=tuple(sorted(rundir.plots.glob("*.png"))),
        was_finished_before=True,
    )


def plots_of(rundir: RunDir, *, title: str) -> tuple[Path, ...]:
    """Draw the plots of a stage and return where they are; say why where that cannot be."""
    try:
        return tuple(draw_plots(rundir.monitor, rundir.plots, title=title))
    except (CheckpointError, OSError) as error:
        logger.warning("there are no plots: %s. metrics.jsonl has their numbers.", error)
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
        f"{place} was made with {key} {then}, and now it is {now_is}: what was explored and not "
        f"trained would be lost. Set it back. {FROM_MODEL}"
    )


def _evaluation_line(metrics: dict[str, float]) -> str:
    rewards = {name: value for name, value in metrics.items() if "/reward/mean@" in name}
    return ", ".join(f"{name} {value:.3f}" for name, value in rewards.items()) or "no evaluation"


def say_changes(
    config: Config, *, before: dict[str, Any], rundir: RunDir, display: Display
) -> None:
    """Tell which settings are others than at the start before (``run.json``, Any: json)."""
    changes = changes_line(config, rundir=rundir) if before else ""
    if not changes:
        return
    remedy = ""
    if is_finished(config, before):
        remedy = "; nothing is done with that here: set another name for a run of its own"
    display.say(f"changed since the last start: {changes}{remedy}")


def changes_line(config: Config, *, rundir: RunDir) -> str:
    """Return ``path then -> now`` of each setting that differs; empty if none does.

    Values of what may be a secret are left out.

    Args:
        config: of the stage, resolved.
        rundir: of the stage, with the ``config.yaml`` of the start before; without, nothing
            differs.
    """
    shown = [_line(*change) for change in changes_of(config, rundir=rundir)]
    more = len(shown) - MAX_SHOWN
    return ", ".join(shown[:MAX_SHOWN]) + (f", and {more} more" if more > 0 else "")


def changes_of(config: Config, *, rundir: RunDir) -> list[Change]:
    """Return the settings that differ from the start before, as they may be shown.

    Args:
        config: of the stage, resolved.
        rundir: of the stage.
    """
    changed = [one for one in changed_settings(config, rundir.path) if one[0] not in ASKED]
    return [change for change in changed if ADDRESS not in str(change)]


def shown_change(change: Change) -> list[str]:
    """Return path, then and now as people may see them; of what may be a secret the path alone."""
    path, then, now = change
    hidden = (masked_setting(path, then), masked_setting(path, now)) != (then, now)
    if hidden or MASK in f"{then}{now}" or then == now or path.startswith("explorer.env_vars."):
        return [path, NOT_SHOWN, NOT_SHOWN]
    return [path, _shown(then), _shown(now)]


def _line(path: str, then: Any, now: Any) -> str:  # Any: yaml
    shown = shown_change((path, then, now))
    if shown[1] == NOT_SHOWN:
        return f"{path} (values not shown)"
    return f"{path} {shown[1]} -> {shown[2]}"


def _shown(value: Any) -> str:  # Any: yaml
    text = "none" if value is None else " ".join(str(value).split())
    return text if len(text) <= 40 else f"{text[:37]}..."


def note_start(
    config: Config, *, before: dict[str, Any], manager: PluginManager, rundir: RunDir
) -> None:
    """Add a line to ``starts.jsonl``; where it cannot be written, the run goes on without.

    Args:
        config: of the stage, resolved.
        before: ``run.json`` of the start before; empty: there was none (Any: json).
        manager: of the plugins.
        rundir: of the stage, whose ``config.yaml`` is still that of the start before.
    """
    plugins = {
        str(row["distribution"] or row["plugin"]): f"{row['version']} {row['source_hash']}"
        for row in manager.describe()
    }
    line = {
        "at": datetime.now().astimezone().isoformat(timespec="seconds"),
        "mode": config.mode,
        "explored": before.get("explore_steps", 0),
        "trained": before.get("train_steps", 0),
        "digest": manager.digest(),
        "plugins": plugins,
        "changes": [shown_change(one) for one in changes_of(config, rundir=rundir)],
    }
    try:
        append_whole(rundir.path / _STARTS, (json.dumps(line) + "\n").encode())
    except OSError as error:
        logger.warning("%s cannot be written: %s", rundir.path / _STARTS, error)
