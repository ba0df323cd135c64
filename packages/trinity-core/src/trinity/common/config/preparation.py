"""Probe, resolve and check in one go: what a run and ``trinity config check`` begin with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trinity.common.config.check import check
from trinity.common.config.config import Config
from trinity.common.config.machine import Machine, probe
from trinity.common.config.problem import Problem, config_error
from trinity.common.config.resolve import resolve, resolve_stages

if TYPE_CHECKING:
    from trinity.extend import PluginManager


def prepared(config: Config) -> Config:
    """Return the configuration resolved for this machine; a workflow may still be missing.

    Raises:
        ConfigError: it cannot be run, in any of its stages; the message lists every problem.
    """
    machine, manager = probe(model_path=config.model.model_path), run_manager(config)
    stages = resolve_stages(config, machine, manager=manager)
    _raise_problems(
        stages, machine, name=config.source.file, manager=manager, harmless=("notice", "open")
    )
    if not config.stages:
        return stages[0]
    return resolve(config, machine, manager=manager)


def run_manager(config: Config) -> PluginManager:
    """Return the process's plugins, narrowed to those that ``plugins.*`` lets take part."""
    from trinity.extend import get_manager

    manager, chosen = get_manager(), config.plugins
    if not (chosen.disabled or chosen.allow or chosen.prefer) and chosen.autoload:
        return manager
    return manager.narrowed(
        disabled=chosen.disabled,
        autoload=chosen.autoload,
        allow=chosen.allow,
        prefer=chosen.prefer,
    )


def prepared_stages(config: Config) -> list[Config]:
    """Return one resolved configuration per stage, all of them checked.

    Raises:
        ConfigError: one of them cannot be run; the message lists every problem.
    """
    machine, manager = probe(model_path=config.model.model_path), run_manager(config)
    stages = resolve_stages(config, machine, manager=manager)
    for stage in stages:
        stage._folder = Path.cwd()  # of now: a part of the run may change it
    _raise_problems(stages, machine, name=config.source.file, manager=manager)
    return stages


def _raise_problems(
    stages: list[Config],
    machine: Machine,
    *,
    name: str,
    manager: PluginManager,
    harmless: tuple[str, ...] = ("notice",),
) -> None:
    problems: list[Problem] = []
    for stage in stages:
        found = check(stage, machine, manager=manager)
        notices = [str(p) for p in found if p.severity in harmless]
        stage.notes.extend(notice for notice in notices if notice not in stage.notes)
        problems += [problem for problem in found if problem.severity not in harmless]
    if problems:
        raise config_error(problems, name=name)


Config._prepared = staticmethod(prepared)
