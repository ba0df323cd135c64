"""``resolve``: fill in what follows from other values and from the machine. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.parts import NamedParts
from trinity.common.config.resolution import Resolution
from trinity.common.config.resolve_algorithm import resolve_algorithm
from trinity.common.config.resolve_buffer import resolve_buffer
from trinity.common.config.resolve_endpoint import resolve_endpoint
from trinity.common.config.resolve_machine import resolve_machine
from trinity.common.config.resolve_model import resolve_model
from trinity.common.config.resolve_run import resolve_run
from trinity.common.config.unused import note_unused

if TYPE_CHECKING:
    from trinity.common.config.config import Config
    from trinity.common.config.machine import Machine
    from trinity.extend import PluginManager

__all__ = ["resolve", "resolve_stages", "stage_configs"]

_STAGE_SECTIONS = ("mode", "algorithm", "buffer", "data_processor", "explorer", "trainer")


def resolve(config: Config, machine: Machine, *, manager: PluginManager | None = None) -> Config:
    """Return a new configuration with every value filled in; ``config`` is not changed.

    The order of precedence: command line, YAML, the algorithm's ``default_config()``, the
    component's ``default_args()``, the global default.
    """
    work = Resolution(config, machine=machine, parts=NamedParts(manager))
    resolve_run(work)
    resolve_machine(work)
    resolve_model(work)
    resolve_algorithm(work)
    resolve_buffer(work)
    resolve_endpoint(work)
    note_unused(work)
    return work.finished()


def resolve_stages(
    config: Config, machine: Machine, *, manager: PluginManager | None = None
) -> list[Config]:
    """Return one resolved configuration per stage; a run without stages is one stage."""
    return [resolve(stage, machine, manager=manager) for stage in stage_configs(config)]


def stage_configs(config: Config) -> list[Config]:
    """Return one configuration per stage, with the stage's sections in place of the global ones."""
    if not config.stages:
        return [config]
    return [_stage(config, index) for index in range(len(config.stages))]


def _stage(config: Config, index: int) -> Config:
    stage = config.stages[index]
    merged = config.copied()
    moved = []
    for name in _STAGE_SECTIONS:
        value = getattr(stage, name)
        if value is not None:
            setattr(merged, name, value.copied() if hasattr(value, "copied") else value)
            moved.append((name, f"stages.{index}.{name}"))
    merged.name = f"{config.name}/{stage.stage_name}"
    merged.stages = []
    merged._source = config.source.with_moves(*moved)
    return merged
