"""``resolve``: fill in what follows from other values and from the machine. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

from trinity.common.config.base import StrictModel
from trinity.common.config.check_names import tasksets_in_use
from trinity.common.config.parts import NamedParts
from trinity.common.config.paths import leaves, value_at
from trinity.common.config.resolve_algorithm import resolve_algorithm
from trinity.common.config.resolve_buffer import resolve_buffer
from trinity.common.config.resolve_gpus import resolve_memory
from trinity.common.config.resolve_machine import resolve_machine
from trinity.common.config.resolve_model import resolve_model
from trinity.common.config.unused import note_unused

if TYPE_CHECKING:
    from trinity.common.config.config import Config
    from trinity.common.config.machine import Machine
    from trinity.extend import PluginManager


class Resolution:
    """A copy of a configuration that is being filled in.

    Values that the user gave stay known as such (pydantic's set of given fields), so that a
    resolved configuration can be changed and resolved again.
    """

    def __init__(self, config: Config, *, machine: Machine, parts: NamedParts) -> None:
        self.config = config.copied()
        self.machine = machine
        self.parts = parts
        self.schema_type: tuple[str, str] = ("experience", "default")  # what is trained on, origin
        self._origins: dict[str, str] = {}

    def asked(self, path: str) -> bool:
        """Return whether the user gave a value (None is none)."""
        parent, _, name = path.rpartition(".")
        section = self.value(parent)
        if not isinstance(section, StrictModel) or name not in section.model_fields_set:
            return False
        return getattr(section, name) is not None

    def value(self, path: str) -> Any:
        """Return what stands at a path."""
        return value_at(self.config, path)

    def fill(self, path: str, value: Any, *, origin: str | None) -> None:
        """Set a value that follows from others; None: where it came from is known already."""
        parent, _, name = path.rpartition(".")
        section = self.value(parent)
        given = name in section.model_fields_set
        setattr(section, name, value)
        if not given:
            section.model_fields_set.discard(name)
        if origin is not None:
            self._origins[path] = origin

    def default(self, path: str, value: Any, *, origin: str) -> None:
        """Set a value unless the user gave one."""
        if not self.asked(path):
            self.fill(path, value, origin=origin)

    def note(self, text: str) -> None:
        """Keep a line for the run's header."""
        if text not in self.config.notes:
            self.config.notes.append(text)

    def from_part(self, path: str, origin: str) -> None:
        """Remember where one value inside a free dict came from."""
        self._origins[path] = origin

    def finished(self) -> Config:
        """Return the configuration with the origin of every value."""
        origins = {path: self._origin(path) for path, _ in leaves(self.config)}
        self.config.origins.clear()
        self.config.origins.update(origins)
        return self.config

    def _origin(self, path: str) -> str:
        for known in _upwards(path):
            if _is_section(self.value(known)):
                break
            if known in self._origins:
                return self._origins[known]
            where = self.config.source.where(known)
            if where or self.asked(known):
                return where or "Python"
        return "default"


def _upwards(path: str) -> list[str]:
    """Return a path and those of what holds it, the nearest first."""
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]


def _is_section(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(item, StrictModel) for item in value)
    return isinstance(value, StrictModel)


CHECKPOINT_ROOT = "./checkpoints"


def resolve_run(work: Resolution) -> None:
    """Fill in the folder of the run, its namespace and the sync intervals of both sides."""
    config = work.config
    if not config.checkpoint_root_dir:
        work.fill("checkpoint_root_dir", CHECKPOINT_ROOT, origin="default")
    if not config.ray_namespace:
        parts = [part for part in (config.project, config.group, config.name) if part]
        work.fill("ray_namespace", "/".join(parts), origin="project/group/name")
    if config.shares_run_directory and config.mode == "explore":
        _draw_by_name(work)
    for side in ("explorer_sync_interval", "trainer_sync_interval"):
        work.default(
            f"synchronizer.{side}",
            config.synchronizer.sync_interval,
            origin="synchronizer.sync_interval",
        )
    work.default("explorer.rollout_model.seed", config.seed, origin="seed")


def _draw_by_name(work: Resolution) -> None:
    """Let explorers of one run that differ in their names draw other tasks and other answers."""
    name = work.config.explorer.name
    if name != "explorer":
        seed = (work.config.seed + crc32(name.encode())) % 2**31
        work.fill("seed", seed, origin="seed and explorer.name")


_SWITCH = "explorer.rollout_model.enable_openai_api"


def resolve_endpoint(work: Resolution) -> None:
    """Switch the endpoint on for a workflow that needs it, where nobody said otherwise."""
    if work.asked(_SWITCH):
        return
    for _, taskset in tasksets_in_use(work.config):
        name = taskset.default_workflow_type
        if name and getattr(work.parts.load("workflow", name), "needs_endpoint", False):
            work.fill(_SWITCH, value=True, origin=f"workflow {name}")


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
    if machine.num_gpus > 0:
        resolve_memory(work)
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
