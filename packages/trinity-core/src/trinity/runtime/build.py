"""Build the rooms that a stage's mode needs, each found by its registered name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.buffer.file import FileStorage
from trinity.buffer.pipeline import ExperiencePipeline
from trinity.buffer.task_source import TaskSource, build_evaluation_sets
from trinity.common.config import ExperienceBufferConfig
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.explorer.explorer import Explorer
from trinity.runtime.boundary import boundary
from trinity.runtime.bounded_source import BoundedSource
from trinity.runtime.parts import Parts, RunInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.config import Config
    from trinity.common.ports import Monitor
    from trinity.extend import PluginManager
    from trinity.runtime.display import Display
    from trinity.runtime.interrupt import Interrupt
    from trinity.runtime.rundir import RunDir
    from trinity.trainer.torch_trainer import TorchTrainer

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
        mode = self._config.mode
        chat_format = ChatFormat.from_config(self._config.model)
        self._parts.monitors = self._monitors()
        if mode in {"both", "train", "explore"}:
            self._parts.storage = self._storage(chat_format)
        tasks = self._task_source() if mode in {"both", "explore"} else None
        if mode in {"both", "train"}:
            self._add_trainer(tasks)
        if mode in {"both", "explore", "bench"}:
            self._add_explorer(tasks, chat_format)

    def _add_trainer(self, tasks: TaskSource | None) -> None:
        parts, config = self._parts, self._config
        parts.num_train_steps = config.trainer.total_steps
        if tasks is None and parts.num_train_steps is None:
            parts.num_train_steps = _steps_of_storage(config, parts.storage)
        trainer_class = self._manager.load("trainer", config.trainer.trainer_type)
        parts.trainer = trainer_class(
            config,
            model_path=config.model.model_path,
            total_steps=parts.num_train_steps or _steps_of_tasks(config, tasks),
            seed=config.seed,
        )
        strategy_class = self._manager.load("sample_strategy", config.algorithm.sample_strategy)
        parts.strategy = strategy_class(**config.algorithm.sample_strategy_args)
        source: Any = parts.storage
        if tasks is not None:
            parts.source = source = BoundedSource(parts.storage)
        parts.strategy.bind(
            {"experience_buffer": source},
            train_batch_size=config.buffer.train_batch_size,
            read_timeout_s=config.buffer.trainer_input.experience_buffer.max_read_timeout,
        )

    def _add_explorer(self, tasks: TaskSource | None, chat_format: ChatFormat) -> None:
        parts, config = self._parts, self._config
        parts.engines = self._engines()
        model = ModelWrapper(
            parts.engines[0], chat_format, config.explorer.rollout_model, model=config.model
        )
        evaluation_sets = build_evaluation_sets(config)
        parts.has_evaluation = bool(evaluation_sets)
        parts.explorer = Explorer(
            config,
            tasks=tasks,
            evaluation_sets=evaluation_sets,
            engines=parts.engines,
            model=model,
            pipeline=self._pipeline() if tasks is not None else None,
        )
        if tasks is not None:
            parts.num_explore_steps = tasks.num_steps
        if parts.trainer is not None:
            sync_class = self._manager.load("sync_method", config.synchronizer.sync_method)
            parts.sync = sync_class(parts.engines)

    def _engines(self) -> list[Any]:
        rollout = self._config.explorer.rollout_model
        engine_class = self._manager.load("rollout_engine", rollout.engine_type)
        shared = self._shared_module()
        return [
            engine_class(
                model_path=self._config.model.model_path,
                dtype=rollout.dtype,
                seed=rollout.seed,
                max_model_len=self._config.model.max_model_len,
                trust_remote_code=self._config.model.trust_remote_code,
                module=shared,
            )
            for _ in range(rollout.engine_num)
        ]

    def _shared_module(self) -> Any:
        """Return the trainer's own module where an engine may use it unseen, else None."""
        trainer: TorchTrainer | None = self._parts.trainer
        sync, rollout = self._config.synchronizer, self._config.explorer.rollout_model
        may_share = (
            trainer is not None
            and sync.sync_interval == 1
            and sync.sync_offset == 0
            and rollout.engine_num == 1
            # With another precision the trainer keeps float32 weights under autocast.
            and rollout.dtype == self._config.trainer.precision == "float32"
        )
        return trainer.model if may_share and trainer is not None else None

    def _pipeline(self) -> ExperiencePipeline:
        config = self._config
        operators = [
            self._manager.load("experience_operator", operator.name)(**operator.args)
            for operator in config.data_processor.experience_pipeline.operators
        ]
        advantage_fn = None
        algorithm = self._manager.load("algorithm", config.algorithm.algorithm_type)
        if config.algorithm.advantage_fn and algorithm.setting("use_advantage"):
            advantage_class = self._manager.load("advantage_fn", config.algorithm.advantage_fn)
            if not advantage_class.compute_in_trainer():
                advantage_fn = advantage_class(**config.algorithm.advantage_fn_args)
        return ExperiencePipeline(
            operators,
            advantage_fn,
            self._parts.storage,
            input_sink=self._raw_experiences(),
            plugin_digest=self._manager.digest(),
        )

    def _raw_experiences(self) -> FileStorage | None:
        """Return where every rollout is kept as the workflow gave it; None: nowhere."""
        settings = self._config.data_processor.experience_pipeline
        if not settings.save_input:
            return None
        own = self._parts.rundir.buffer / "explorer_output.jsonl"
        path = Path(settings.input_save_path or own)
        path.parent.mkdir(parents=True, exist_ok=True)
        setting = "data_processor.experience_pipeline.input_save_path"
        return FileStorage(ExperienceBufferConfig(), path=path, setting=setting)

    def _task_source(self) -> TaskSource:
        return TaskSource(self._config)

    def _storage(self, chat_format: ChatFormat) -> Any:
        buffer = self._config.buffer.trainer_input.experience_buffer
        storage_class = self._manager.load("storage", buffer.storage_type)
        buffer_steps = self._config.buffer.total_steps
        return storage_class(
            buffer,
            path=buffer.path,
            chat_format=chat_format,
            total_epochs=None if buffer_steps is not None else self._config.buffer.total_epochs,
        )

    def _monitors(self) -> Mapping[str, list[Monitor]]:
        config, directory = self._config, self._parts.rundir.monitor
        names = dict.fromkeys(["jsonl", config.monitor.monitor_type])
        classes = [(name, self._manager.load("monitor", name)) for name in names]
        own = config.monitor.monitor_type
        arguments = config.monitor.monitor_args or {}
        return {
            role: [
                monitor(directory=directory, role=role, **(arguments if name == own else {}))
                for name, monitor in classes
            ]
            for role in ("explorer", "trainer", "synchronizer")
        }


def _steps_of_tasks(config: Config, tasks: TaskSource | None) -> int:
    """Return the optimizer steps: before each sync full batches, and a last short one."""
    assert tasks is not None
    sync, buffer = config.synchronizer, config.buffer
    num_syncs = max(0, tasks.num_steps - sync.sync_offset) // sync.sync_interval
    rest = tasks.num_steps - num_syncs * sync.sync_interval
    per_step = buffer.batch_size * (config.algorithm.repeat_times or 1)
    batches = [
        -(-steps * per_step // buffer.train_batch_size) for steps in (sync.sync_interval, rest)
    ]
    return max(1, num_syncs * batches[0] + batches[1])


def _steps_of_storage(config: Config, storage: Any) -> int:
    if config.buffer.total_steps is not None:
        return config.buffer.total_steps
    return max(1, -(-len(storage) // config.buffer.train_batch_size))
