"""Go on from the best checkpoint in a folder of its own, where an advisor's ``rollback`` says so.

RUN/            as it ended; nothing in it changes
RUN/rollback/   what RUN had at its best checkpoint; goes on with the settings of the advice
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.runtime.record.checkpoint import CheckpointStore
from trinity.runtime.record.progress import read_progress
from trinity.runtime.record.rewind import BEGINNING
from trinity.runtime.record.rundir import RunDir
from trinity.runtime.stage import run_stage

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.runtime.display import Display
    from trinity.runtime.record.checkpoint import Checkpoint
    from trinity.runtime.record.result import StageResult

FOLDER = "rollback"


def run_following_advice(
    config: Config, *, rundir: RunDir, display: Display, **options: Any
) -> StageResult:
    """Run a stage as `run_stage` does, and the rest of it anew where an advisor goes back.

    Raises:
        TrinityError: a part failed.
    """
    given = config.copied()
    result = run_stage(config, rundir=rundir, display=display, **options)
    findings = rundir.read_status(mode=config.mode).get("findings", [])
    reason = next((one for one in findings if one["action"] == "rollback"), None)
    if reason is None:
        return result
    best = _best(rundir)
    if best is None:
        display.say("no rollback: no evaluation after a train step named a best checkpoint")
        return result
    outside = [name for name in best.read_state()["files"] if Path(name).is_absolute()]
    if outside:
        display.say(f"no rollback: the run also writes {outside[0]}, outside of its folder")
        return result
    child = RunDir(rundir.path / FOLDER)
    if not child.path.exists():
        _copy(best, child.path)
    given.advisors = {
        name: "stop" if action == "rollback" else action for name, action in given.advisors.items()
    }
    changed = [f"{path} {_set(given, path, value)}" for path, value in reason["settings"].items()]
    display.say(
        f"advisor {reason['advisor']}: going on from {best.path.name} in {child.path}"
        + "".join(f", {one}" for one in changed)
    )
    return run_stage(given, rundir=child, display=display, **options)


def _best(rundir: RunDir) -> Checkpoint | None:
    store = CheckpointStore(rundir.path)
    newest = store.latest()
    best = read_progress(newest.read_state()).best if newest is not None else []
    steps = [step for _, step in best]
    return next((one for one in store.all() if steps and one.step == steps[0]), None)


def _copy(best: Checkpoint, child: Path) -> None:
    """Write the folder of the child whole or not at all: the checkpoint, and what it appends to."""
    run, scratch = best.path.parent, child.with_suffix(".tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(best.path, scratch / best.path.name)
    for name in [BEGINNING, *best.read_state()["files"]]:
        if (run / name).is_file():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(run / name, scratch / name)
    scratch.rename(child)


def _set(config: Config, path: str, value: Any) -> Any:
    """Set a value at a dotted path of sections; return it."""
    section: Any = config
    *sections, key = path.split(".")
    for one in sections:
        section = getattr(section, one)
    setattr(section, key, value)
    return value
