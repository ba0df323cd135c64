"""Run one stage: start or go on, start lost workers anew, and record how it ended."""

from __future__ import annotations

import logging
import os
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.common.config.absolute import make_absolute
from trinity.common.sync_policy import policy_of
from trinity.errors import CheckpointError, WorkerLostError
from trinity.extend import get_manager
from trinity.runtime.advisors import Advisors
from trinity.runtime.bench import run_bench
from trinity.runtime.determinism import LEAST, Determinism, determinism_of
from trinity.runtime.loop import Interrupted, Loop
from trinity.runtime.observers import TimeOuts
from trinity.runtime.parts import EXPLORER_STATE
from trinity.runtime.record.chats import broken_chats
from trinity.runtime.record.checkpoint import CheckpointStore, check_models
from trinity.runtime.record.progress import Progress, read_progress, read_rollouts
from trinity.runtime.record.records import StateRecord, read_record
from trinity.runtime.record.restart import (
    finished_before,
    is_finished,
    note_start,
    plots_of,
    read_before,
    say_changes,
    settings_of,
)
from trinity.runtime.record.result import RunStatus, StageResult
from trinity.runtime.record.rewind import GrowingFiles
from trinity.runtime.record.rundir import write_manifests
from trinity.runtime.record.sample_files import cut_samples
from trinity.runtime.restore import name_of, restore
from trinity.runtime.rollouts import Rollouts
from trinity.runtime.supervisor import RestartLimit
from trinity.starting import num_restarts

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.config import Config
    from trinity.runtime.display import Display
    from trinity.runtime.interrupt import Interrupt
    from trinity.runtime.parts import Parts
    from trinity.runtime.record.checkpoint import Checkpoint
    from trinity.runtime.record.rundir import RunDir

logger = logging.getLogger(__name__)

EXPLORE_ANEW = (
    "Put it back from a copy. Or remove it: all is explored anew, and what was written is cut off."
)
EXPLORE_BESIDE = (
    "Put it back from a copy. Or leave it and set another explorer.name, which explores from the "
    "beginning beside what the ledger has; under this name the ledger would take no step twice."
)


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
    return run.outcome()


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
        self._before = before
        self._stage = stage
        self._parts: Parts | None = None
        self._progress = Progress()
        self._status: RunStatus | None = None  # None: it did not begin
        self._restarts = RestartLimit()
        self._files = files
        # After which no two runs of a seed are equal; None: they are, as far as the style goes.
        self._timed_out_step: int | None = before.get("timed_out_step")
        self._found: list[dict[str, Any]] = list(before.get("audit", []))
        self._advice: list[dict[str, Any]] = list(before.get("findings", []))
        self._began = time.perf_counter()

    def run(self) -> None:
        """Run the stage to its end; a lost worker starts it anew from what is saved.

        Raises:
            TrinityError: what it failed by.
        """
        try:
            place = self._saved_place()
            while self._status is not RunStatus.FINISHED:
                try:
                    parts, loop = self._begin(*place)
                    if self._config.mode == "bench":
                        self._progress.evaluation = run_bench(parts)
                    else:
                        loop.run()
                        parts.audit.finish()
                        parts.finish()
                    self._status = RunStatus.FINISHED
                except WorkerLostError as lost:
                    place = self._recover(lost)
            self._say_broken_chats()
        except Interrupted:
            self._status = RunStatus.INTERRUPTED
        except BaseException as error:
            if self._status is not None:
                self._fail(error)
            raise
        self._end()

    def _say_broken_chats(self) -> None:
        line = broken_chats(self._rundir.monitor)
        if line:
            logger.warning("%s", line)
            self._display.say(line)

    def close(self) -> None:
        """Leave nothing behind: no picture, no worker, and no step that writes."""
        self._close_workers()
        if self._parts is not None:
            self._parts.leave_quiet(waits=self._status is not RunStatus.INTERRUPTED)

    def _close_workers(self) -> None:
        self._display.ended()
        if self._parts is not None:
            self._parts.close()

    def _recover(self, lost: WorkerLostError) -> tuple[Checkpoint | None, dict[str, Any]]:
        """Close what is left of the workers; say and return from where the stage goes on.

        Raises:
            Interrupted: the run was asked to stop.
            TrinityError: too many were lost.
        """
        self._close_workers()
        if self._parts is not None and self._parts.interrupt.is_requested:
            raise Interrupted from lost
        if self._parts is not None:
            self._parts.check_quiet()
        place = self._saved_place()
        said = self._restarts.note_loss(lost, place=name_of(place[1]))
        logger.info("%s", said)
        self._display.say(said)
        return place

    def _begin(self, checkpoint: Checkpoint | None, state: dict[str, Any]) -> tuple[Parts, Loop]:
        """Build the workers and their loop, and let them stand where the checkpoint does."""
        self._rewind(state)
        policy = policy_of(self._config)
        self._progress = read_progress(state, policy) if state else Progress()
        parts = self._parts = self._build()
        parts.growing = self._files
        parts.observers.append(TimeOuts(self._note_time_out))
        advisors = Advisors(parts, self._advice, tell=self._write)
        parts.observers.append(advisors)
        loop = Loop(parts, Rollouts(parts))
        if self._status is None:
            parts.manager.call("trinity_run_started", run=parts.info)
        if state:
            restore(
                parts,
                config=self._config,
                directory=self._rundir.path,
                checkpoint=checkpoint,
                state=state,
                progress=self._progress,
            )
            self._display.say(f"going on after {name_of(state)}")
            self._say_changed_plugins(state)
            loop.resume(self._progress, read_rollouts(state, parts.policy))
        elif parts.storage is not None:
            parts.storage.begin_anew()
        self._progress = loop.progress
        parts.audit.begin(
            self._found,
            step=loop.progress.train_steps,
            is_resumed=bool(state),
            tell=self._say_findings,
        )
        self._status = RunStatus.RUNNING
        if state:
            advisors.replay()
        self._write()
        return parts, loop

    def _note_time_out(self, step: int) -> None:
        """Take back that two runs of a seed are equal: which rollout is late, a machine decides."""
        if self._guarantee() != LEAST:
            self._timed_out_step = step
            self._display.say(
                f"a rollout of explore step {step} was dropped because its time was up: two runs "
                f"of a seed have the {LEAST} from here on. Raise explorer.max_timeout to keep more."
            )
            self._write()

    def _say_findings(self) -> None:
        """Show what the audit found last, and write it down."""
        last = self._found[-1]
        self._display.say(f"audit ({last['check']}): {last['message']}. Look at {last['parts']}.")
        self._write()

    def _guarantee(self) -> Determinism:
        assert self._parts is not None
        if self._timed_out_step is not None:
            return LEAST
        return determinism_of(self._config, self._parts.manager)

    def _saved_place(self) -> tuple[Checkpoint | None, dict[str, Any]]:
        """Return where the stage goes on: a checkpoint and its state, empty at the beginning."""
        path = self._rundir.path / EXPLORER_STATE
        collects = self._config.mode != "bench" and not self._config.has_trainer
        if collects and os.path.lexists(path):
            remedy = EXPLORE_BESIDE if self._config.shares_run_directory else EXPLORE_ANEW
            return None, read_record(path, StateRecord, remedy=remedy)
        if self._config.has_trainer:
            checkpoints = CheckpointStore(self._rundir.path)
            checkpoints.recover()
            checkpoint = checkpoints.newest_whole(say=self._display.say)
            if checkpoint is not None:
                state = checkpoint.read_state()
                _check_mode(state["mode"], self._config.mode, checkpoint)
                return checkpoint, state
        return None, {}

    def _rewind(self, state: dict[str, Any]) -> None:
        if self._config.mode == "bench":
            return  # trains nothing; its lines belong to checkpoints
        if state:
            self._files.check(state["files"], say=self._display.say)
            self._files.cut(state["files"])
        else:
            self._files.cut_to_beginning()
        self._cut_samples(state)  # last: a start that is refused keeps them

    def _cut_samples(self, state: dict[str, Any]) -> None:
        if self._config.has_trainer:
            trained = read_progress(state).train_steps if state else 0
            for problem in cut_samples(self._rundir.path, trained=trained):
                logger.warning("%s", problem)

    def _say_changed_plugins(self, state: dict[str, Any]) -> None:
        manager = get_manager()
        if state.get("digest") == manager.digest():
            return
        then = {f"{row['distribution']} {row['version']}" for row in state.get("plugins", [])}
        now = {f"{row['distribution']} {row['version']}" for row in manager.describe()}
        gone, come = ", ".join(sorted(then - now)), ", ".join(sorted(now - then))
        self._display.say(
            "the plugin set differs from the checkpoint's: "
            f"then {gone or 'the same versions'}; now {come or 'other sources'}"
        )

    def _fail(self, error: BaseException) -> None:
        is_stopped = isinstance(error, KeyboardInterrupt)
        self._status = RunStatus.INTERRUPTED if is_stopped else RunStatus.FAILED
        try:
            self._end(error=f"{type(error).__name__}: {error}")
        except OSError as full:  # the error itself is what the user must see
            logger.warning("run.json could not be written: %s", full)

    def _end(self, *, error: str = "") -> None:
        assert self._parts is not None
        try:
            self._write(error=error)
        finally:
            self._parts.manager.call("trinity_run_finished", run=self._parts.info)

    def _write(self, *, error: str = "") -> None:
        assert self._parts is not None
        assert self._status is not None
        progress = self._progress
        status = {
            "status": self._status.value,
            "stage": self._stage,
            "mode": self._config.mode,
            "asked": settings_of(self._config),
            "explore_steps": progress.explore_steps,
            "train_steps": progress.train_steps,
            "trained_experiences": progress.trained_experiences,
            "total_steps": self._parts.total_steps,
            "guarantee": self._guarantee(),
            **({"timed_out_step": self._timed_out_step} if self._timed_out_step else {}),
            **({"restarts": num_restarts()} if num_restarts() else {}),
            "seconds": float(self._before.get("seconds", 0.0)) + self._seconds(),
            "first_evaluation": progress.first_evaluation,
            "evaluation": progress.evaluation,
            "buffer": self._parts.buffer_counts(),
            **({"audit": self._found} if self._found else {}),
            **({"findings": self._advice} if self._advice else {}),
            "error": error,
        }
        logger.info(
            "%s %s: explore step %d, train step %d%s",
            f"stage {self._stage}" if self._stage else "run", self._status.value,
            progress.explore_steps, progress.train_steps,
            " ".join(f": {error}".split()) if error else "",
        )  # fmt: skip
        self._rundir.write_status(status, mode=self._config.mode)

    def _seconds(self) -> float:
        return time.perf_counter() - self._began

    def outcome(self) -> StageResult:
        """Return the end of the stage, after :meth:`run`."""
        assert self._status is not None
        latest = CheckpointStore(self._rundir.path).latest()
        return StageResult(
            name=self._stage,
            status=self._status,
            directory=self._rundir.path,
            explore_steps=self._progress.explore_steps,
            train_steps=self._progress.train_steps,
            seconds=self._seconds(),
            first_evaluation=self._progress.first_evaluation,
            evaluation=self._progress.evaluation,
            buffer=self._parts.buffer_counts() if self._parts is not None else {},
            checkpoint=latest.path if latest else None,
            plots=plots_of(self._rundir, title=self._config.name),
        )


def _check_mode(then: str, now: str, checkpoint: Checkpoint) -> None:
    """Refuse to count the steps of one mode on in another."""
    if then != now:
        raise CheckpointError(
            f"{checkpoint.path} was made in mode {then}, and mode is {now}. Set another name; to "
            f"start from that model, set model.model_path to {checkpoint.huggingface}."
        )
