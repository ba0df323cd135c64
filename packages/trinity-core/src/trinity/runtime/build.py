"""Build the rooms that a stage's mode needs, each found by its registered name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.buffer.task_source import TaskSource, build_evaluation_sets
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.explorer.continuous import ContinuousExplorer
from trinity.explorer.explorer import Explorer
from trinity.explorer.local import build_scheduler
from trinity.runtime.apart_roles import meet
from trinity.runtime.assembly import (
    make_bounded_source,
    make_engine,
    make_experience_pipeline,
    make_monitors,
    make_storage,
    make_strategy,
    make_sync,
    make_trainer,
    rows_of_a_batch,
    shared_module,
    steps_of_storage,
    steps_of_tasks,
)
from trinity.runtime.auxiliary import make_auxiliary_models
from trinity.runtime.boundary import boundary
from trinity.runtime.endpoints import make_endpoints
from trinity.runtime.group_shelf import GroupShelf, GroupSink
from trinity.runtime.pace import is_in_flight, sync_interval_of
from trinity.runtime.parts import Parts, RunInfo
from trinity.runtime.record.rewind import GrowingFiles
from trinity.runtime.record.samples import SampleLog
from trinity.runtime.record.shown_samples import ShownSamples
from trinity.runtime.serving import Service
from trinity.runtime.sides import is_in_order

if TYPE_CHECKING:
    from trinity.buffer.pipeline import ExperiencePipeline
    from trinity.common.config import Config
    from trinity.extend import PluginManager
    from trinity.runtime.display import Display
    from trinity.runtime.interrupt import Interrupt
    from trinity.runtime.record.rundir import RunDir

__all__ = ["build_parts"]


def build_parts(
    config: Config,
    *,
    rundir: RunDir,
    manager: PluginManager,
    display: Display,
    interrupt: Interrupt,
    stage: str = "",
) -> Parts:
    """Return the rooms of one resolved stage, all in this process.

    Raises:
        TrinityError: a model, a dataset or a component cannot be loaded.
    """
    parts = Parts(
        config=config,
        rundir=rundir,
        info=RunInfo(directory=rundir.path, config=config, stage=stage),
        manager=manager,
        display=display,
        interrupt=interrupt,
    )
    try:
        with boundary("the start of the run"):
            _Builder(parts).build()
    except BaseException:
        parts.close()
        raise
    return parts


class _Builder:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._config = parts.config
        self._manager = parts.manager

    def build(self) -> None:
        parts, config, mode = self._parts, self._config, self._config.mode
        chat_format = ChatFormat.from_config(config.model)
        parts.monitors = make_monitors(config, self._manager, rundir=parts.rundir)
        parts.shown = ShownSamples.of(config, parts.monitors, rundir=parts.rundir)
        service = Service(parts) if mode == "serve" else None
        if mode in {"both", "train", "explore", "serve"}:
            parts.storage = make_storage(
                config, self._manager, chat_format=chat_format, rundir=parts.rundir
            )
            parts.is_in_order = is_in_order(config, self._manager)
        tasks = TaskSource(config) if mode in {"both", "explore"} else None
        if config.has_trainer:
            self._add_trainer(tasks, chat_format)
        if mode in {"both", "explore", "bench"}:
            self._add_explorer(tasks, chat_format)
        if service is not None:
            service.add_to(chat_format)
        meet(parts)

    def _add_trainer(self, tasks: TaskSource | None, chat_format: ChatFormat) -> None:
        parts, config = self._parts, self._config
        parts.num_train_steps = config.trainer.total_steps
        if config.mode == "train" and parts.num_train_steps is None:
            parts.num_train_steps = steps_of_storage(config, count=lambda: len(parts.storage))
        num_steps = parts.num_train_steps or 0  # 0: a service goes on until it is stopped
        if tasks is not None:
            num_steps = num_steps or steps_of_tasks(config, self._manager, tasks=tasks)
        parts.trainer = make_trainer(config, self._manager, total_steps=num_steps)
        parts.samples = SampleLog.of(
            config, self._manager, trainer=parts.trainer, rundir=parts.rundir
        )
        source: Any = parts.storage
        if config.mode != "train":
            source = make_bounded_source(config, self._manager, storage=parts.storage)
            parts.source, parts.batch_size = source, rows_of_a_batch(config, self._manager)
        parts.strategy = make_strategy(
            config, self._manager, source=source, chat_format=chat_format
        )

    def _add_explorer(self, tasks: TaskSource | None, chat_format: ChatFormat) -> None:
        parts, config = self._parts, self._config
        shared = self._shared_module()
        parts.engines = [
            make_engine(config, self._manager, module=shared)
            for _ in range(config.explorer.rollout_model.engine_num)
        ]
        endpoints = make_endpoints(config)
        model = ModelWrapper(
            parts.engines[0],
            chat_format,
            config.explorer.rollout_model,
            model=config.model,
            endpoints=endpoints,
        )
        evaluation_sets = build_evaluation_sets(config)
        parts.has_evaluation = bool(evaluation_sets)
        scheduler = build_scheduler(
            config,
            engines=parts.engines,
            model=model,
            auxiliary_models=make_auxiliary_models(config, self._manager, endpoints=endpoints),
            endpoints=endpoints,
        )
        if isinstance(parts.storage, GroupShelf) and tasks is not None:
            parts.explorer = parts.flight = ContinuousExplorer(
                config,
                tasks=tasks,
                evaluation_sets=evaluation_sets,
                scheduler=scheduler,
                pipeline=self._pipeline(),
                shelf=parts.storage,
                marks=GrowingFiles(config, rundir=parts.rundir).explorer_marks,
            )
        else:
            parts.explorer = Explorer(
                config,
                tasks=tasks,
                evaluation_sets=evaluation_sets,
                scheduler=scheduler,
                pipeline=self._pipeline() if tasks is not None else None,
            )
        if tasks is not None:
            parts.num_explore_steps = tasks.num_steps
        if parts.trainer is not None:
            parts.sync = make_sync(config, self._manager, engines=parts.engines)

    def _pipeline(self) -> ExperiencePipeline:
        parts, sink = self._parts, self._parts.storage
        if isinstance(sink, GroupShelf):
            sink = GroupSink(sink)
        return make_experience_pipeline(parts.config, parts.manager, sink=sink, rundir=parts.rundir)

    def _shared_module(self) -> Any:
        """Return the trainer's own module where an engine may use it unseen, else None."""
        trainer = self._parts.trainer
        sync, rollout = self._config.synchronizer, self._config.explorer.rollout_model
        may_share = (
            trainer is not None
            and not self._config.model.lora_configs  # engines know no adapters
            and sync_interval_of(self._config) == 1
            and sync.sync_offset == 0
            and not is_in_flight(self._config)  # it answers while the trainer works
            and rollout.engine_num == 1
            # With another precision the trainer keeps float32 weights under autocast.
            and rollout.dtype == self._config.trainer.precision == "float32"
        )
        return shared_module(self._config, self._manager, trainer=trainer) if may_share else None
