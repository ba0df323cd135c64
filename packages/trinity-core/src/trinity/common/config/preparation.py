"""Probe, resolve and check in one go: what a run and ``trinity config check`` begin with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.common.config.check import check
from trinity.common.config.config import Config
from trinity.common.config.machine import Machine, probe
from trinity.common.config.problem import Problem, config_error
from trinity.common.config.resolve import resolve, resolve_stages, stage_configs

if TYPE_CHECKING:
    from trinity.extend import PluginManager


def prepared(config: Config) -> Config:
    """Return the configuration resolved for this machine; a workflow may still be missing.

    Raises:
        ConfigError: it cannot be run, in any of its stages; the message lists every problem.
    """
    stages = prepared_stages(config, harmless=("notice", "open"))
    if not config.stages:
        return stages[0]
    return resolve(config, probe(model_path=config.model.model_path), manager=run_manager(config))


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


def prepared_stages(
    config: Config, *, local: bool = False, harmless: tuple[str, ...] = ("notice",)
) -> list[Config]:
    """Return one resolved configuration per stage, all of them checked.

    Args:
        config: as it was loaded.
        local: whether they run in one process.
        harmless: severities of problems that are notes.

    Raises:
        ConfigError: one of them cannot be run; the message lists every problem.
    """
    machine, manager = probe(model_path=config.model.model_path), run_manager(config)
    if local:
        config, machine = in_one_process(config, machine)
    stages = resolve_stages(config, machine, manager=manager)
    problems: list[Problem] = []
    for stage in stages:
        stage._folder = Path.cwd()  # of now: a part of the run may change it
        found = check(stage, machine, manager=manager)
        notices = [str(p) for p in found if p.severity in harmless]
        stage.notes.extend(notice for notice in notices if notice not in stage.notes)
        problems += [problem for problem in found if problem.severity not in harmless]
    if problems:
        raise config_error(problems, name=config.source.file)
    return stages


def in_one_process(config: Config, machine: Machine) -> tuple[Config, Machine]:
    """Return both as ``--local`` uses them: a GPU, or those of an engine that spreads over more."""
    stages, config = stage_configs(config), config.copied()
    width = max(stage.explorer.rollout_model.tensor_parallel_size for stage in stages)
    machine = replace(machine, num_gpus=min(machine.num_gpus, width), is_one_process=True)
    for key, most in (("node_num", 1), ("gpu_per_node", machine.num_gpus)):
        if machine.num_gpus and getattr(config.cluster, key) > most:
            setattr(config.cluster, key, most)
    return config, machine


Config._prepared = staticmethod(prepared)
