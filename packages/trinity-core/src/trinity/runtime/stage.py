"""Run one stage: start or go on, tell its story, say how it ended."""

from __future__ import annotations

import json
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.errors import CheckpointError
from trinity.extend import get_manager
from trinity.runtime.bench import run_bench
from trinity.runtime.build import build_parts
from trinity.runtime.parts import EXPLORER_STATE
from trinity.runtime.pipeline import Interrupted, Pipeline
from trinity.runtime.plots import draw_plots
from trinity.runtime.progress import Progress
from trinity.runtime.result import RunStatus, StageResult
from trinity.runtime.rundir import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.runtime.checkpoint import Checkpoint
    from trinity.runtime.display import Display
    from trinity.runtime.interrupt import Interrupt
    from trinity.runtime.parts import Parts
    from trinity.runtime.rundir import RunDir

__all__ = ["run_stage"]

logger = logging.getLogger(__name__)


def run_stage(
    config: Config, *, rundir: RunDir, display: Display, interrupt: Interrupt, stage: str = ""
) -> StageResult:
    """Run one resolved stage and return how it ended.

    Raises:
        TrinityError: a part failed; ``run.json`` says so and what was trained is saved.
    """
    rundir.create()
    before = rundir.read_status(mode=config.mode)
    if config.mode == "bench" or before.get("mode") != config.mode:
        before = {}  # what another mode did is no part of this one
    if before.get("status") == RunStatus.FINISHED.value and not _wants_more(config, before):
        display.say(f"{rundir.path} is finished: {_evaluation_line(before['evaluation'])}")
        return _finished_before(before, rundir=rundir, stage=stage)
    began = time.perf_counter()
    _write_manifests(config, rundir)
    manager = get_manager()
    parts = build_parts(
        config, rundir=rundir, manager=manager, display=display, interrupt=interrupt, stage=stage
    )
    story = _Story(parts, stage=stage, before=before)
    try:
        story.tell()
    finally:
        display.ended()
        parts.close()
    return story.result(seconds=time.perf_counter() - began)


class _Story:
    """One stage from its first line in ``run.json`` to its last."""

    def __init__(self, parts: Parts, *, stage: str, before: dict[str, Any]) -> None:
        self._parts = parts
        self._stage = stage
        self._pipeline = Pipeline(parts)
        self._status = RunStatus.RUNNING
        self._before = before
        self._first_evaluation: dict[str, float] = before.get("first_evaluation", {})
        self._began = time.perf_counter()

    def tell(self) -> None:
        parts = self._parts
        parts.manager.call("trinity_run_started", run=parts.info)
        self._resume()
        self._write()
        try:
            self._run()
            self._status = RunStatus.FINISHED
        except Interrupted:
            self._status = RunStatus.INTERRUPTED
        except BaseException as error:
            self._status = RunStatus.FAILED
            if isinstance(error, KeyboardInterrupt):
                self._status = RunStatus.INTERRUPTED
            self._write_failure(error)
            parts.manager.call("trinity_run_finished", run=parts.info)
            raise
        self._write()
        parts.manager.call("trinity_run_finished", run=parts.info)

    def _run(self) -> None:
        if self._parts.config.mode == "bench":
            self._pipeline.evaluation = run_bench(self._parts)
        else:
            self._pipeline.run()

    def _resume(self) -> None:
        parts = self._parts
        checkpoint = parts.checkpoints.latest() if parts.trainer is not None else None
        if checkpoint is not None and parts.trainer is not None:
            state = checkpoint.read_state()
            _check_mode(state["mode"], parts.config.mode, checkpoint)
            parts.trainer.load(checkpoint.actor)
            parts.storage.write(checkpoint.read_experiences())
        else:
            path = parts.rundir.path / EXPLORER_STATE
            if parts.config.mode != "explore" or not path.exists():
                return
            state = json.loads(path.read_text())
        self._restore(state)

    def _restore(self, state: dict[str, Any]) -> None:
        parts = self._parts
        progress = Progress(**state["progress"])
        self._pipeline.resume(progress)
        if parts.explorer is not None:
            parts.explorer.load_state_dict(state["explorer"])
        if parts.strategy is not None and state.get("strategy"):
            parts.strategy.load_state_dict(state["strategy"])
        if state.get("storage") and hasattr(parts.storage, "load_state_dict"):
            parts.storage.load_state_dict(state["storage"])
        if parts.sync is not None and parts.trainer is not None:
            parts.sync.sync(partial(parts.trainer.snapshot, copy=False))
        parts.display.say(
            f"going on after explore step {progress.explored}, train step {progress.trained}"
        )
        self._say_changed_plugins(state)

    def _say_changed_plugins(self, state: dict[str, Any]) -> None:
        manager = self._parts.manager
        if state.get("digest") == manager.digest():
            return
        then = {f"{row['distribution']} {row['version']}" for row in state.get("plugins", [])}
        now = {f"{row['distribution']} {row['version']}" for row in manager.describe()}
        gone, come = ", ".join(sorted(then - now)), ", ".join(sorted(now - then))
        self._parts.display.say(
            "the plugin set differs from the checkpoint's: "
            f"then {gone or 'the same versions'}; now {come or 'other sources'}"
        )

    def _write(self, *, error: str = "") -> None:
        progress = self._pipeline.progress
        status = {
            "status": self._status.value,
            "stage": self._stage,
            "mode": self._parts.config.mode,
            "asked": _asked(self._parts.config),
            "explore_steps": progress.explored,
            "train_steps": progress.trained,
            "trained_experiences": progress.trained_experiences,
            "total_steps": self._parts.total_steps,
            "seconds": self._seconds(),
            "first_evaluation": self._first(),
            "evaluation": self._evaluation(),
            "error": error,
        }
        logger.info("stage %r: %s", self._stage, status)
        self._parts.rundir.write_status(status, mode=self._parts.config.mode)

    def _write_failure(self, error: BaseException) -> None:
        try:
            self._write(error=f"{type(error).__name__}: {error}")
        except OSError as full:  # the error itself is what the user must see
            logger.warning("run.json could not be written: %s", full)

    def _seconds(self) -> float:
        return float(self._before.get("seconds", 0.0)) + time.perf_counter() - self._began

    def _first(self) -> dict[str, float]:
        return self._first_evaluation or self._pipeline.first_evaluation

    def _evaluation(self) -> dict[str, float]:
        return self._pipeline.evaluation or self._before.get("evaluation", {})

    def result(self, *, seconds: float) -> StageResult:
        """Return the end of the stage, after :meth:`tell`."""
        progress = self._pipeline.progress
        latest = self._parts.checkpoints.latest()
        return StageResult(
            name=self._stage,
            status=self._status,
            directory=self._parts.rundir.path,
            explore_steps=progress.explored,
            train_steps=progress.trained,
            seconds=seconds,
            first_evaluation=self._first(),
            evaluation=self._evaluation(),
            checkpoint=latest.path if latest else None,
            plots=_plots(self._parts.rundir, title=self._parts.config.name),
        )


def _check_mode(then: str, now: str, checkpoint: Checkpoint) -> None:
    """Refuse to count the steps of one mode on in another."""
    if then != now:
        raise CheckpointError(
            f"{checkpoint.path} was made in mode {then}, and mode is {now}. Set another name; to "
            f"start from that model, set model.model_path to {checkpoint.huggingface}."
        )


def _wants_more(config: Config, before: dict[str, Any]) -> bool:
    """Return whether a finished stage may have a longer way now than it went."""
    limit = config.trainer.total_steps
    is_at_limit = limit is not None and before["train_steps"] >= limit
    return before["asked"] != _asked(config) and not is_at_limit


def _asked(config: Config) -> list[int | None]:
    """Return what sets the length of a run."""
    return [config.buffer.total_epochs, config.buffer.total_steps, config.trainer.total_steps]


def _finished_before(before: dict[str, Any], *, rundir: RunDir, stage: str) -> StageResult:
    from trinity.runtime.checkpoint import CheckpointStore

    latest = CheckpointStore(rundir.path).latest()
    return StageResult(
        name=stage,
        status=RunStatus.FINISHED,
        directory=rundir.path,
        explore_steps=before["explore_steps"],
        train_steps=before["train_steps"],
        seconds=before["seconds"],
        first_evaluation=before["first_evaluation"],
        evaluation=before["evaluation"],
        checkpoint=latest.path if latest else None,
        plots=tuple(sorted(rundir.plots.glob("*.png"))),
        was_finished_before=True,
    )


def _write_manifests(config: Config, rundir: RunDir) -> None:
    import yaml

    values = config.model_dump(mode="json", fallback=repr)
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    write_atomically(rundir.path / "config.yaml", text)
    plugins = json.dumps(get_manager().describe(), indent=2) + "\n"
    write_atomically(rundir.path / "plugins.json", plugins)


def _evaluation_line(metrics: dict[str, float]) -> str:
    rewards = {name: value for name, value in metrics.items() if "/reward/mean@" in name}
    return ", ".join(f"{name} {value:.3f}" for name, value in rewards.items()) or "no evaluation"


def _plots(rundir: RunDir, *, title: str) -> tuple[Path, ...]:
    return tuple(draw_plots(rundir.monitor, rundir.plots, title=title))
