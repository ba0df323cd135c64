"""Probe, resolve and check in one go: what a run and ``trinity config check`` begin with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.common.config.check import check
from trinity.common.config.config import Config
from trinity.common.config.machine import Machine, probe
from trinity.common.config.problem import Problem, config_error
from trinity.common.config.resolve import resolve, stage_configs

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

    ``local``: they run in one process. Problems of ``harmless`` severities become notes.

    Raises:
        ConfigError: one of them cannot be run; the message lists every problem.
    """
    machine, manager = probe(model_path=config.model.model_path), run_manager(config)
    stages = stages_on(config, machine, manager=manager, local=local)
    problems: list[Problem] = []
    for stage, used in stages:
        stage._folder = Path.cwd()  # of now: a part of the run may change it
        found = check(stage, used, manager=manager)
        notices = [str(p) for p in found if p.severity in harmless]
        stage.notes.extend(notice for notice in notices if notice not in stage.notes)
        problems += [problem for problem in found if problem.severity not in harmless]
    if problems:
        raise config_error(problems, name=config.source.file)
    return [stage for stage, _ in stages]


def stages_on(
    config: Config, machine: Machine, *, manager: PluginManager, local: bool
) -> list[tuple[Config, Machine]]:
    """Return each stage, resolved, and the machine as it uses it; see `prepared_stages`."""
    stages = [(stage, machine) for stage in stage_configs(config)]
    if local:
        stages = [in_one_process(stage, machine) for stage, machine in stages]
    return [(resolve(stage, used, manager=manager), used) for stage, used in stages]


def in_one_process(stage: Config, machine: Machine) -> tuple[Config, Machine]:
    """Return both as ``--local`` uses them: a GPU, or those of an engine that spreads over more."""
    width, stage = stage.explorer.rollout_model.tensor_parallel_size, stage.copied()
    there, asked = machine.num_gpus, stage.cluster
    each = 0 if stage.is_plugin_mode else min(asked.gpu_per_node or there, there)
    over_ray = max(1, asked.node_num) * (each,)
    machine = replace(
        machine, num_gpus=min(there, width), is_one_process=True, gpus_over_ray=over_ray
    )
    for key, most in (("node_num", 1), ("gpu_per_node", machine.num_gpus)):
        if machine.num_gpus and getattr(stage.cluster, key) > most:
            setattr(stage.cluster, key, most)
    return stage, machine


Config._prepared = staticmethod(prepared)
