"""``Config``: the whole configuration, one section per top-level key of the YAML."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, PrivateAttr, field_validator

from trinity.common.config.algorithm import AlgorithmConfig
from trinity.common.config.base import Lowercase, StrictModel, core, other, section
from trinity.common.config.buffer import BufferConfig, DataProcessorConfig
from trinity.common.config.explorer import ExplorerConfig
from trinity.common.config.model import ModelConfig
from trinity.common.config.problem import Source
from trinity.common.config.run import (
    CORE_MODES,
    ClusterConfig,
    LogConfig,
    Mode,
    MonitorConfig,
    PluginsConfig,
    ServiceConfig,
    StageConfig,
)
from trinity.common.config.synchronizer import SynchronizerConfig
from trinity.common.config.trainer import TrainerConfig, switch

Action = Literal["warn", "stop", "rollback", "off"]  # of an advisor


class Config(StrictModel):
    """The configuration of a run.

    Made by `load_config`, filled in by `resolve`, judged by `check`.
    """

    mode: Annotated[Mode, Lowercase] = core("both", "what the run does; plugins add modes")
    project: str = core("Trinity-RFT", "first folder of the run directory")
    group: str = core("", "second folder of the run directory, if any")
    name: str = core("rft", "last folder of the run directory")
    checkpoint_root_dir: str = core("", "folder of all run directories; default: ./checkpoints")
    ray_namespace: str = other("", "Ray namespace of the run's actors", used_by="older versions")
    continue_from_checkpoint: bool = core(
        True, "continue a stopped run of this name; false: start a new run beside it"
    )
    ignore_validator_suggestions: bool = other(
        False, "ignore suggestions on GPU memory", used_by="suggestions on GPU memory"
    )
    seed: int = core(42, "seed of all randomness that has no seed of its own", ge=0, lt=2**63)
    audit: Annotated[Literal["warn", "stop", "off"], BeforeValidator(switch)] = core(
        "warn", "what a part that breaks its contract does to the run; off: nobody looks"
    )
    advisors: dict[str, Annotated[Action, BeforeValidator(switch)]] = core(
        {}, "what happens when an advisor finds something; each installed one warns unless named"
    )
    plugins: PluginsConfig = section(PluginsConfig, "which plugins are used")
    algorithm: AlgorithmConfig = section(AlgorithmConfig, "the algorithm, its loss and optimizer")
    data_processor: DataProcessorConfig = section(DataProcessorConfig, "pipelines of operators")
    model: ModelConfig = section(ModelConfig, "the model")
    cluster: ClusterConfig = section(ClusterConfig, "the machines")
    buffer: BufferConfig = section(BufferConfig, "tasks and experiences")
    explorer: ExplorerConfig = section(ExplorerConfig, "rollouts: workflows, engines, evaluation")
    trainer: TrainerConfig = section(TrainerConfig, "the trainer and its checkpoints")
    monitor: MonitorConfig = section(MonitorConfig, "where metrics go")
    synchronizer: SynchronizerConfig = section(SynchronizerConfig, "weight sync: when and how")
    service: ServiceConfig = section(ServiceConfig, "external services")
    log: LogConfig = section(LogConfig, "what is logged")
    sweep: dict[str, Any] = other(
        {}, "values of keys, and seeds, to run this file for", used_by="trinity sweep"
    )
    stages: list[StageConfig] = core([], "several trainings, one after the other")

    @field_validator("stages")
    @classmethod
    def _names_differ(cls, stages: list[StageConfig]) -> list[StageConfig]:
        names = [stage.stage_name for stage in stages]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two stages are named {twice[0]!r}. Rename one")
        return stages

    _prepared: ClassVar[Callable[[Config], Config]]  # bound by `preparation`
    _source: Source = PrivateAttr(default_factory=Source)
    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _notes: list[str] = PrivateAttr(default_factory=list)
    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    @property
    def origins(self) -> dict[str, str]:
        """Return where each value came from, by its dotted path (after `resolve`)."""
        return self._origins

    @property
    def has_trainer(self) -> bool:
        """Return whether a run of this mode trains; a plugin's does with a section `trainer`."""
        trains = self.mode in {"both", "train"}
        return trains or (self.is_plugin_mode and "trainer" in self.model_fields_set)

    @property
    def is_colocated(self) -> bool:
        """Return whether engines and trainer use the same GPUs in turns (after `resolve`)."""
        return self.mode == "both" and self.explorer.rollout_model.enable_sleep_mode

    @property
    def is_plugin_mode(self) -> bool:
        """Return whether a plugin's run mode builds the engines and the explorer."""
        return self.mode not in CORE_MODES

    @property
    def shares_run_directory(self) -> bool:
        """Return whether this run has a part of a run directory: its explorer's, or its trainer's.

        The buffer in between belongs to all of them.
        """
        buffer = self.buffer.trainer_input.experience_buffer
        is_sql = buffer is not None and buffer.storage_type == "sql"
        is_shared = is_sql or bool(self.synchronizer.standalone)
        return is_shared and self.mode in {"explore", "train"}

    @property
    def is_standalone(self) -> bool:
        """Return whether explorer and trainer are separate runs, which wait for each other."""
        if self.synchronizer.standalone is None:
            return self.shares_run_directory
        return self.mode in {"explore", "train"} and self.synchronizer.standalone

    @property
    def notes(self) -> list[str]:
        """Return changed requests: "requested X, found Y, using Z" (after `resolve`)."""
        return self._notes

    @property
    def source(self) -> Source:
        """Return what is known of the file that this configuration was read from."""
        return self._source

    @property
    def folder(self) -> Path:
        """Return the folder from which its relative paths count."""
        return self._folder

    def copied(self) -> Config:
        """Return a copy whose sections are new; see `StrictModel.copied`."""
        copy = super().copied()
        copy._source = self._source
        copy._origins = dict(self._origins)
        copy._notes = list(self._notes)
        return copy

    def check_and_update(self) -> Config:
        """Return this configuration resolved for this machine.

        What a run needs and a program may still fill in, the workflow of a task set, is a note.

        Raises:
            ConfigError: it cannot be run; the message lists every problem.
        """
        return type(self)._prepared(self)

    def flatten(self) -> dict[str, Any]:
        """Return every value by its dotted path; the published name of `flat`."""
        return self.flat()

    def flat(self) -> dict[str, Any]:
        """Return every value by its dotted path."""
        from trinity.common.config.paths import leaves

        return dict(leaves(self))
