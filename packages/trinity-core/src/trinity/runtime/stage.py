"""Run one stage: start or go on, start lost workers anew, and record how it ended."""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.common.config.absolute import make_absolute
from trinity.common.sync_policy import policy_of
from trinity.errors import WorkerLostError
from trinity.extend import get_manager
from trinity.runtime.advisors import Advisors
from trinity.runtime.bench import run_bench
from trinity.runtime.loop import Interrupted, Loop
from trinity.runtime.observers import TimeOuts
from trinity.runtime.record.chats import broken_chats
from trinity.runtime.record.checkpoint import CheckpointStore, check_models
from trinity.runtime.record.progress import Progress, read_progress, read_rollouts
from trinity.runtime.record.restart import (
    finished_before,
    is_finished,
    note_start,
    read_before,
    say_changes,
)
from trinity.runtime.record.result import RunStatus, StageResult
from trinity.runtime.record.rewind import GrowingFiles
from trinity.runtime.record.rundir import write_manifests
from trinity.runtime.restore import name_of, restore, rewind, saved_place
from trinity.runtime.rollouts import Rollouts
from trinity.runtime.stage_record import StageRecord
from trinity.runtime.supervisor import RestartLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.config import Config
    from trinity.runtime.display import Display
    from trinity.runtime.interrupt import Interrupt
    from trinity.runtime.parts import Parts
    from trinity.runtime.record.checkpoint import Checkpoint
    from trinity.runtime.record.rundir import RunDir

logger = logging.getLogger(__name__)


def run_stage(
    config: Config,
    *,
    rundir: RunDir,
    display: Display,
    interrupt: Interrupt,
    stage: str = "",
    build: Callable[..., Parts] | None = None,
) -> StageResult:
    """Run one resolved stage and return how it ended.

    Args:
        config: of the stage.
        rundir: of the stage.
        display: where its picture is drawn.
        interrupt: whether it was asked to stop.
        stage: its name; "": a run without stages.
        build: makes the workers, as ``build.build_parts`` does, which None means.

    Raises:
        TrinityError: a part failed; ``run.json`` says so and what was trained is saved.
    """
    rundir.create()
    before = read_before(config, rundir=rundir)
    say_changes(config, before=before, rundir=rundir, display=display)
    if is_finished(config, before):
        return finished_before(before, rundir=rundir, display=display, stage=stage)
    note_start(config, before=before, manager=get_manager(), rundir=rundir)
    write_manifests(config, plugins=get_manager().describe(), directory=rundir.path)
    files = GrowingFiles(config, rundir=rundir)
    make_absolute(config)  # now: config.yaml and checkpoints have paths as written
    workers = partial(
        build or _local_build(),
        config,
        rundir=rundir,
        manager=get_manager(),
        display=display,
        interrupt=interrupt,
        stage=stage,
    )
    check_models(config)
    load = interrupt.at_once(workers)
    interrupt.has_checkpoint = lambda: bool(CheckpointStore(rundir.path).all())
    run = _StageRun(config, files=files, display=display, build=load, before=before, stage=stage)
    with closing(run):
        run.run()
    return run.record.outcome()


def _local_build() -> Callable[..., Parts]:
    from trinity.runtime.build import build_parts  # with engines and a trainer

    return build_parts


class _StageRun:
    """One stage from its first line in ``run.json`` to its last."""

    def __init__(
        self,
        config: Config,
        *,
        files: GrowingFiles,
        display: Display,
        build: Callable[[], Parts],
        before: dict[str, Any],
        stage: str,
    ) -> None:
        self._config = config
        self._rundir = files.rundir
        self._display = display
        self._build = build
        self._files = files
        self._restarts = RestartLimit()
        self.record = StageRecord(
            config, rundir=files.rundir, display=display, before=before, stage=stage
        )

    def run(self) -> None:
        """Run the stage to its end; a lost worker starts it anew from what is saved.

        Raises:
            TrinityError: what it failed by.
        """
        try:
            place = saved_place(self._config, self._rundir, say=self._display.say)
            while self.record.status is not RunStatus.FINISHED:
                try:
                    parts, loop = self._begin(*place)
                    if self._config.mode == "bench":
                        self.record.progress.evaluation = run_bench(parts)
                    else:
                        loop.run()
                        parts.audit.finish()
                        parts.finish()
                    self.record.status = RunStatus.FINISHED
                except WorkerLostError as lost:
                    place = self._recover(lost)
            self._say_broken_chats()
        except Interrupted:
            self.record.status = RunStatus.INTERRUPTED
        except BaseException as error:
            if self.record.status is not None:
                self.record.fail(error)
            raise
        self.record.end()

    def _say_broken_chats(self) -> None:
        line = broken_chats(self._rundir.monitor)
        if line:
            logger.warning("%s", line)
            self._display.say(line)

    def close(self) -> None:
        """Leave nothing behind: no picture, no worker, and no step that writes."""
        self._close_workers()
        if self.record.parts is not None:
            self.record.parts.leave_quiet(waits=self.record.status is not RunStatus.INTERRUPTED)

    def _close_workers(self) -> None:
        self._display.ended()
        if self.record.parts is not None:
            self.record.parts.close()

    def _recover(self, lost: WorkerLostError) -> tuple[Checkpoint | None, dict[str, Any]]:
        """Close what is left of the workers; say and return from where the stage goes on.

        Raises:
            Interrupted: the run was asked to stop.
            TrinityError: too many were lost.
        """
        self._close_workers()
        if self.record.parts is not None and self.record.parts.interrupt.is_requested:
            raise Interrupted from lost
        if self.record.parts is not None:
            self.record.parts.check_quiet()
        place = saved_place(self._config, self._rundir, say=self._display.say)
        said = self._restarts.note_loss(lost, place=name_of(place[1]))
        logger.info("%s", said)
        self._display.say(said)
        return place

    def _begin(self, checkpoint: Checkpoint | None, state: dict[str, Any]) -> tuple[Parts, Loop]:
        """Build the workers and their loop, and let them stand where the checkpoint does."""
        rewind(self._config, self._files, state, say=self._display.say)
        policy = policy_of(self._config)
        self.record.progress = read_progress(state, policy) if state else Progress()
        parts = self.record.parts = self._build()
        parts.files = self._files
        parts.observers.append(TimeOuts(self.record.note_time_out))
        advisors = Advisors(parts, self.record.advice, tell=self.record.write)
        parts.observers.append(advisors)
        loop = Loop(parts, Rollouts(parts))
        if self.record.status is None:
            parts.manager.call("trinity_run_started", run=parts.info)
        if state:
            restore(
                parts,
                config=self._config,
                directory=self._rundir.path,
                checkpoint=checkpoint,
                state=state,
                progress=self.record.progress,
            )
            self._display.say(f"going on after {name_of(state)}")
            self._say_changed_plugins(state)
            loop.resume(self.record.progress, read_rollouts(state, parts.policy))
        elif parts.storage is not None:
            parts.storage.begin_anew()
        self.record.progress = loop.progress
        parts.audit.begin(
            self.record.found,
            step=loop.progress.train_steps,
            is_resumed=bool(state),
            tell=self.record.say_findings,
        )
        self.record.status = RunStatus.RUNNING
        if state:
            advisors.replay()
        self.record.write()
        return parts, loop

    def _say_changed_plugins(self, state: dict[str, Any]) -> None:
        manager = get_manager()
        if state.get("digest") == manager.digest():
            return
        then, now = (
            {f"{row['distribution'] or row['path']} {row['version'] or ''}".strip() for row in rows}
            for rows in (state.get("plugins", []), manager.describe())
        )
        gone, come = (", ".join(sorted(some)) or "without" for some in (then - now, now - then))
        what = "the same versions of other sources" if then == now else f"then {gone}; now {come}"
        self._display.say(f"the plugin set differs from the checkpoint's: {what}")
