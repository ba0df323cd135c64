"""What is said, set and asked before anything starts."""

from __future__ import annotations

import math
import os
import platform
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from trinity.common.config.check_names import problem_at, tasksets_in_use
from trinity.common.config.preparation import run_manager
from trinity.common.config.problem import config_error
from trinity.common.sync_policy import policy_of
from trinity.errors import ConfigError, PluginError, TrinityError
from trinity.extend import get_manager, set_manager
from trinity.extend.loading import hook_names
from trinity.extend.ownership import refuse_any_other_owner
from trinity.extend.watch import Watch
from trinity.runtime.assembly import sync_method_can
from trinity.runtime.determinism import determinism_of
from trinity.runtime.environment import environment
from trinity.runtime.error_context import place_of, plugin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trinity.common.config import Config
    from trinity.common.config.buffer import TasksetConfig
    from trinity.extend import PluginManager
    from trinity.runtime.record.rundir import RunDir


def set_threads() -> None:
    """Let waiting threads sleep, unless the user has said otherwise.

    It must stand in the environment before torch is imported: threads that spin while they wait
    make two busy processes on one machine many times slower.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@contextmanager
def plugins_of(config: Config) -> Iterator[PluginManager]:
    """Use the plugins that the configuration's ``plugins`` section chooses, while it runs.

    Raises:
        PluginError: another distribution owns the import package ``trinity`` too.
        ConfigError: ``plugins.require`` does not hold.
    """
    before, manager = get_manager(), run_manager(config)
    refuse_any_other_owner()
    missing = manager.missing_requirements(config.plugins.require)
    if missing:
        raise ConfigError("plugins.require does not hold: " + "; ".join(missing))
    set_manager(manager)
    try:
        yield manager
    finally:
        set_manager(before)


# A call that takes long is told; these are broken off, too:
_QUICK = {
    *("get_indices", "order", "feedback", "available", "put_back", "drop_older", "waiting"),
    *("log", "flush", "log_samples", "state_dict", "load_state_dict", "default_args", "__call__"),
}
_WAITING = {"read", "sample", "read_groups"}  # for rows, so long as max_read_timeout says
_OWN_LIMIT = ("run", "run_async")  # of a run mode, and of a workflow


def watch_of(config: Config, *, say: Callable[[str], None]) -> Watch:
    """Return what names the call of a plugin that the run waits for, and breaks it off."""
    given = config.plugins
    end_after_s = given.end_after_s or math.inf
    read_s = config.buffer.trainer_input.experience_buffer
    reads_after_s = end_after_s + (read_s.max_read_timeout if read_s is not None else 0.0)
    limits: dict[str, float | None] = dict.fromkeys([*_QUICK, *hook_names()], end_after_s)
    limits |= dict.fromkeys(_WAITING, reads_after_s) | dict.fromkeys(_OWN_LIMIT) | {"": math.inf}
    return Watch(
        say,
        whose=plugin_of,
        report_after_s=given.report_after_s,
        end_after_s=limits,
        remedy="Correct it, or raise plugins.end_after_s; then run the same command: it goes on "
        "from what is saved.",
    )


def refuse_local(stages: Sequence[Config], *, local: bool) -> None:
    """Refuse several trainer processes in one process.

    Raises:
        ConfigError: a stage asks for them.
    """
    for stage in stages:
        asked = {
            key: getattr(stage.trainer, key)
            for key in ("num_ranks", "ulysses_sequence_parallel_size")
        }
        key = max(asked, key=lambda name: asked[name])
        if local and stage.has_trainer and asked[key] > 1:
            remedy = "run over Ray, without --local"
            if stage.is_plugin_mode:
                remedy = f"mode {stage.mode} trains in its own process: leave it out"
            raise ConfigError(
                f"trainer.{key} is {asked[key]}, and here all parts share one process: {remedy}."
            )


def note_local(stages: Sequence[Config], *, manager: PluginManager, local: bool) -> None:
    """Hand weights over where a stage would send them from process to process, and note it."""
    for stage in stages:
        sync = stage.synchronizer
        has_one_side = stage.mode in {"explore", "train", "bench"}
        if local and not has_one_side and sync_method_can(stage, manager, "sender"):
            if stage.origins.get("synchronizer.sync_method") != "machine":
                stage.notes.append(
                    f"synchronizer.sync_method {sync.sync_method} sends weights from process to "
                    f"process, and here all parts share one: memory"
                )
            sync.sync_method = "memory"


def refuse_over_ray(stages: Sequence[Config], *, local: bool) -> None:
    """Refuse the mode of a plugin, whose workers stand in the driver.

    Raises:
        ConfigError: there is one.
    """
    found = [] if local else [stage.mode for stage in stages if stage.is_plugin_mode]
    if found:
        raise ConfigError(
            f"mode {found[0]} keeps all of its parts in one process, so it does not run over Ray. "
            f"Start it with: trinity run --local --config FILE."
        )


def check_workflows(stages: Sequence[Config], *, manager: PluginManager) -> None:
    """Let each workflow look at what its tasksets give it.

    Raises:
        ConfigError: one of them could run no row; the message lists every problem.
        PluginError: a workflow failed to look.
    """
    problems = []
    for stage in stages:
        with environment(stage.explorer.env_vars):
            for path, taskset in tasksets_in_use(stage):
                found = _problem_of(taskset, manager)
                problems += [problem_at(stage, f"{path}.workflow_args", found)] if found else []
    if problems:
        raise config_error(problems, name=stages[0].source.file)


def _problem_of(taskset: TasksetConfig, manager: PluginManager) -> str:
    if not taskset.default_workflow_type:
        return ""  # each row names its own
    component = manager.find("workflow", taskset.default_workflow_type)
    check = getattr(component.load(), "check_arguments", None)  # a plain function has none
    try:
        if check is not None:
            check(taskset.workflow_args)
    except TrinityError as error:
        return str(error)
    except Exception as error:  # of a plugin's code
        raise PluginError(
            f"check_arguments of workflow {component.name} ({component.origin}) failed: "
            f"{type(error).__name__}: {error} at {place_of(error)}."
        ) from error
    return ""


def header_lines(stages: Sequence[Config], *, rundir: RunDir, manager: PluginManager) -> list[str]:
    """Return the lines that a run begins with: versions, plugins, what follows the machine."""
    lines = [
        f"trinity-core {version('trinity-core')}, python {platform.python_version()}, "
        f"torch {version('torch')}",
        manager.header(),
        f"run directory {rundir.path}",
    ]
    trained = (stage for stage in stages if stage.mode == "both")
    lines += dict.fromkeys(_guarantee_line(stage, manager) for stage in trained)
    notes: dict[str, None] = {}
    for stage in stages:
        notes.update(dict.fromkeys(stage.notes))
    return lines + [f"note: {note}" for note in notes]


def _guarantee_line(stage: Config, manager: PluginManager) -> str:
    style, level = policy_of(stage).style, determinism_of(stage, manager)
    limit = ", if each rollout asks the model once" if level == "same numbers" else ""
    return f"sync_style {style}: two runs of a seed have the {level}{limit}"
