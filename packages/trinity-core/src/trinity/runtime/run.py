"""Run a configuration: every stage, from the first row to the last checkpoint."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from trinity.common.config import Config, load_config, prepared_stages
from trinity.common.config.absolute import expand_home
from trinity.common.config.kept import remember_secrets
from trinity.common.models.pretrained import fetch_settings, no_progress_bars
from trinity.runtime.display import Display
from trinity.runtime.environment import environment, mask_late_secrets
from trinity.runtime.error_context import no_exit
from trinity.runtime.interrupt import Interrupt
from trinity.runtime.preflight import (
    check_workflows,
    header_lines,
    note_local,
    plugins_of,
    refuse_local,
    refuse_over_ray,
    set_threads,
    watch_of,
)
from trinity.runtime.record.lock import run_lock
from trinity.runtime.record.logs import logs_to
from trinity.runtime.record.memory_record import MemoryRecord
from trinity.runtime.record.records import explained_when_full
from trinity.runtime.record.result import RunResult, RunStatus, StageResult
from trinity.runtime.record.rundir import run_directory
from trinity.runtime.rollback import advised_rollback
from trinity.runtime.run_sides import own_part, part_of
from trinity.runtime.stage import run_stage
from trinity.starting import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from trinity.runtime.parts import Parts
    from trinity.runtime.ray.cluster import Cluster
    from trinity.runtime.record.rundir import RunDir


def run(
    config: Config | str | Path, *, local: bool = False, console: Console | None = None
) -> RunResult:
    """Run a configuration and return what it left behind.

    Args:
        config: a YAML file, or a configuration that was loaded and perhaps changed.
        local: True runs every worker in this process; False: each in one of its own, over Ray.
        console: where to print; None: the terminal.

    Raises:
        ConfigError: the configuration cannot be run as written; nothing was started.
        TrinityError: a part failed on the way; what was trained is saved.
        KeyboardInterrupt: stopped at once by a second Ctrl-C.
    """
    set_threads()
    given = config if isinstance(config, Config) else load_config(config)
    holds_secrets = remember_secrets(given, env=os.environ)
    mask_late_secrets()
    display = Display(console, title=given.name)
    stopping, watch = Interrupt(display.say), watch_of(given, say=display.say)
    with stopping as stop, plugins_of(given) as manager, no_exit(), watch:
        manager.call("trinity_configure", config=given)
        expand_home(given)  # again: it may have been changed
        fetch_settings(given.model)
        stages = prepared_stages(given, local=local)
        refuse_over_ray(stages, local=local)
        refuse_local(stages, local=local)
        note_local(stages, manager=manager, local=local)
        check_workflows(stages, manager=manager)
        shared = run_directory(stages[0], given, say=display.say, holds_secrets=holds_secrets)
        rundir = own_part(stages, rundir=shared)
        tell(directory=str(rundir.path))
        for line in header_lines(stages, rundir=rundir, manager=manager):
            display.say(line)
        logs = logs_to(rundir.path, level=given.log.level, say=display.say)
        full = explained_when_full(rundir.path)
        lock = run_lock(shared.path, say=display.say, part=part_of(stages[0]))
        ground = _ground(stages[0], display, local=local)
        quiet = no_progress_bars()
        with full, lock as file, logs, MemoryRecord(file, display), quiet, ground as build:
            run_one = partial(run_stage, display=display, interrupt=stop, build=build)
            results = _run_stages(
                stages, given=given, rundir=rundir, run=run_one, stop=stop, display=display
            )
    return RunResult(directory=rundir.path, stages=tuple(results))


@contextmanager
def _ground(
    first: Config, display: Display, *, local: bool
) -> Iterator[Callable[..., Parts] | None]:
    """Give what builds the workers of a stage: in this process (None), or over a Ray.

    Ray is joined or started for the first stage that needs it: one that is finished does not.
    """
    if local:
        yield None
        return
    with ExitStack() as stack:

        @cache
        def ground() -> Cluster:
            from trinity.runtime.ray.cluster import cluster
            from trinity.runtime.ray.worker_spec import value_line

            by_value = value_line()
            if by_value:
                display.say(by_value)
            return stack.enter_context(cluster(first, say=display.say))

        def build(config: Config, **options: Any) -> Parts:  # Any: as run_stage gives them
            from trinity.runtime.ray.build import build_parts_over_ray

            return build_parts_over_ray(config, ground=ground(), **options)

        yield build


def _run_stages(
    stages: Sequence[Config],
    *,
    given: Config,
    rundir: RunDir,
    run: Callable[..., StageResult],
    stop: Interrupt,
    display: Display,
) -> list[StageResult]:
    results: list[StageResult] = []
    names = [stage.stage_name for stage in given.stages] or [""]
    for name, config in zip(names, stages, strict=True):
        place = rundir.stage(name) if name else rundir
        if stop.is_requested:
            results.append(
                StageResult(name=name, status=RunStatus.INTERRUPTED, directory=place.path)
            )
            break
        checkpoints = [result.checkpoint for result in results if result.checkpoint is not None]
        if checkpoints:  # a stage that only explores or evaluates hands on what it was given
            trained = str(checkpoints[-1] / "actor" / "huggingface")
            config.model.model_path = config.explorer.rollout_model.model_path = trained
            if config.origins["model.critic_model_path"] == "model.model_path":
                config.model.critic_model_path = trained
        with environment(config.explorer.env_vars):
            given_stage = config.copied()
            result = run(config, rundir=place, stage=name)
            advised = advised_rollback(given_stage, rundir=place, display=display)
            if advised is not None:
                result = run(advised[0], rundir=advised[1], stage=name)
            results.append(result)
        if results[-1].status is not RunStatus.FINISHED:
            break
    return results
