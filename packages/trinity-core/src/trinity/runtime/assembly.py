"""How each room is made from a configuration: the local build and the Ray rooms call the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError
from trinity.runtime.bounded_source import BoundedSource
from trinity.runtime.pace import sync_interval_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.algorithm import SampleStrategy
    from trinity.buffer.file import FileStorage
    from trinity.buffer.pipeline import ExperiencePipeline
    from trinity.buffer.task_source import TaskSource
    from trinity.common.config import Config
    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.ports import ExperienceSink, ExperienceSource, Monitor
    from trinity.extend import PluginManager
    from trinity.runtime.record.rundir import RunDir

__all__ = [
    "make_bounded_source",
    "make_engine",
    "make_experience_pipeline",
    "make_monitors",
    "make_storage",
    "make_strategy",
    "make_sync",
    "make_trainer",
    "rows_of_a_batch",
    "steps_of_storage",
    "steps_of_tasks",
]


def make_storage(
    config: Config, manager: PluginManager, *, chat_format: ChatFormat | None
) -> Any:  # Any: a registered storage, sink and source at once
    """Return the experience buffer: the registered storage, or one that goes by priority."""
    buffer = config.buffer.trainer_input.experience_buffer
    replay = buffer.replay_buffer
    if replay.enable:
        from trinity.buffer.replay import ReplayStorage

        priority_fn = manager.load("priority_fn", replay.priority_fn)
        return ReplayStorage(buffer, priority_fn=priority_fn(**replay.priority_fn_args))
    storage_class = manager.load("storage", buffer.storage_type)
    return storage_class(
        buffer,
        path=buffer.path,
        chat_format=chat_format,
        total_epochs=None if config.buffer.total_steps is not None else config.buffer.total_epochs,
    )


def make_bounded_source(
    config: Config, manager: PluginManager, *, storage: ExperienceSource
) -> BoundedSource:
    """Return what lets the strategy read from ``storage`` only what is due."""
    return BoundedSource(storage, batch_size=rows_of_a_batch(config, manager))


def rows_of_a_batch(config: Config, manager: PluginManager) -> int:
    """Return how many experiences an optimizer step reads from the experience buffer, 1 or more.

    Raises:
        ConfigError: it is none, and nothing else would end the training.
    """
    size, name = config.buffer.train_batch_size, config.algorithm.sample_strategy
    num_read = int(getattr(_strategy(config, manager), "num_read", lambda size: size)(size))
    if num_read < 1 and config.mode == "both" and config.trainer.total_steps is None:
        raise ConfigError(
            f"algorithm.sample_strategy {name} reads none of the explorer's experiences for a "
            f"batch of {size}, so the training would never end. Change "
            f"algorithm.sample_strategy_args or buffer.train_batch_size, or set "
            f"trainer.total_steps."
        )
    return max(1, num_read)


def make_strategy(
    config: Config,
    manager: PluginManager,
    *,
    source: ExperienceSource,
    chat_format: ChatFormat | None,
) -> SampleStrategy:
    """Return the sample strategy, reading from ``source`` and from the auxiliary buffers."""
    strategy = _strategy(config, manager)
    strategy.bind(
        {
            "experience_buffer": source,
            **_auxiliary_sources(config, manager, chat_format=chat_format),
        },
        train_batch_size=config.buffer.train_batch_size,
        read_timeout_s=config.buffer.trainer_input.experience_buffer.max_read_timeout,
    )
    return strategy


def _strategy(config: Config, manager: PluginManager) -> SampleStrategy:
    strategy_class = manager.load("sample_strategy", config.algorithm.sample_strategy)
    strategy: SampleStrategy = strategy_class(**config.algorithm.sample_strategy_args)
    return strategy


def _auxiliary_sources(
    config: Config, manager: PluginManager, *, chat_format: ChatFormat | None
) -> dict[str, ExperienceSource]:
    """Return the auxiliary buffers by name; each begins anew where it ends."""
    return {
        name: manager.load("storage", buffer.storage_type)(
            buffer, path=buffer.path, chat_format=chat_format, total_epochs=None
        )
        for name, buffer in config.buffer.trainer_input.auxiliary_buffers.items()
    }


def make_trainer(
    config: Config, manager: PluginManager, *, total_steps: int
) -> Any:  # Any: a registered trainer
    """Return the trainer of a run of ``total_steps`` optimizer steps."""
    trainer_class = manager.load("trainer", config.trainer.trainer_type)
    return trainer_class(
        config,
        model_path=config.model.model_path,
        total_steps=total_steps,
        seed=config.seed,
    )


def make_engine(
    config: Config,
    manager: PluginManager,
    *,
    module: Any = None,  # Any: a transformers model
) -> Any:  # Any: a registered rollout engine
    """Return one rollout engine.

    Args:
        config: a resolved configuration.
        manager: the plugins.
        module: the trainer's model, to be used as it is; None: the engine loads its own.
    """
    rollout = config.explorer.rollout_model
    engine_class = manager.load("rollout_engine", rollout.engine_type)
    return engine_class(
        model_path=config.model.model_path,
        dtype=rollout.dtype,
        seed=rollout.seed,
        max_model_len=config.model.max_model_len,
        trust_remote_code=config.model.trust_remote_code,
        module=module,
    )


def make_sync(
    config: Config, manager: PluginManager, *, engines: Any
) -> Any:  # Any: a registered sync method
    """Return what brings weights to these engines."""
    return manager.load("sync_method", config.synchronizer.sync_method)(engines)


def make_experience_pipeline(
    config: Config, manager: PluginManager, *, sink: ExperienceSink, rundir: RunDir
) -> ExperiencePipeline:
    """Return what experiences pass on their way from the explorer to ``sink``."""
    from trinity.buffer.pipeline import ExperiencePipeline

    operators = [
        manager.load("experience_operator", operator.name)(**operator.args)
        for operator in config.data_processor.experience_pipeline.operators
    ]
    advantage_fn = None
    algorithm = manager.load("algorithm", config.algorithm.algorithm_type)
    if config.algorithm.advantage_fn and algorithm.setting("use_advantage"):
        advantage_class = manager.load("advantage_fn", config.algorithm.advantage_fn)
        if not advantage_class.compute_in_trainer():
            advantage_fn = advantage_class(**config.algorithm.advantage_fn_args)
    return ExperiencePipeline(
        operators,
        advantage_fn,
        sink,
        input_sink=_raw_experiences(config, rundir=rundir),
        plugin_digest=manager.digest(),
    )


def _raw_experiences(config: Config, *, rundir: RunDir) -> FileStorage | None:
    """Return where every rollout is kept as the workflow gave it; None: nowhere."""
    from trinity.buffer.file import FileStorage
    from trinity.common.config import ExperienceBufferConfig

    settings = config.data_processor.experience_pipeline
    if not settings.save_input:
        return None
    path = Path(settings.input_save_path or rundir.buffer / "explorer_output.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    setting = "data_processor.experience_pipeline.input_save_path"
    return FileStorage(ExperienceBufferConfig(), path=path, setting=setting)


def make_monitors(
    config: Config, manager: PluginManager, *, rundir: RunDir
) -> Mapping[str, list[Monitor]]:
    """Return the monitors of each role: the chosen one, and the file of JSON lines."""
    own, arguments = config.monitor.monitor_type, config.monitor.monitor_args or {}
    names = dict.fromkeys(["jsonl", own])
    classes = [(name, manager.load("monitor", name)) for name in names]
    return {
        role: [
            monitor(directory=rundir.monitor, role=role, **(arguments if name == own else {}))
            for name, monitor in classes
        ]
        for role in ("explorer", "trainer", "synchronizer")
    }


def steps_of_tasks(config: Config, manager: PluginManager, *, tasks: TaskSource | None) -> int:
    """Return the optimizer steps.

    With style ``fixed`` each turn of the trainer ends in a short batch, with reuse any turn in one
    that is filled up; else only the last of the run is short.
    """
    assert tasks is not None
    sync, num_read = config.synchronizer, rows_of_a_batch(config, manager)
    per_step = config.buffer.batch_size * (config.algorithm.repeat_times or 1)
    interval, offset = sync.sync_interval, sync.sync_offset
    if sync.sync_style != "fixed":
        if config.buffer.trainer_input.experience_buffer.replay_buffer.reuse_cooldown_time is None:
            return max(1, -(-tasks.num_steps * per_step // num_read))
        explores = sync.sync_style == "explorer_driven"
        interval, offset = sync_interval_of(config) if explores else 1, 0
    num_syncs = max(0, tasks.num_steps - offset) // interval
    rest = tasks.num_steps - num_syncs * interval
    batches = [-(-steps * per_step // num_read) for steps in (interval, rest)]
    return max(1, num_syncs * batches[0] + batches[1])


def steps_of_storage(config: Config, *, num_experiences: int) -> int:
    """Return the optimizer steps of mode ``train``, which reads what is stored."""
    if config.buffer.total_steps is not None:
        return config.buffer.total_steps
    return max(1, -(-num_experiences // config.buffer.train_batch_size))
