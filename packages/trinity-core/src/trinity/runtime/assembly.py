"""How each component is made from a configuration, in this process and in Ray workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.config.inference_model import engine_arguments
from trinity.common.ports import Storage
from trinity.common.sync_policy import policy_of
from trinity.errors import ConfigError
from trinity.extend.kind import parameters_of
from trinity.extend.kinds import KINDS
from trinity.runtime.audited_rows import AuditedSource
from trinity.runtime.group_storage import GroupStorage, group_storage_of
from trinity.runtime.plugin_adapter import abilities_in, adapted
from trinity.runtime.ready import ReadyGroups, ReadyRows
from trinity.runtime.run_sides import use_of_buffer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.algorithm import SampleStrategy
    from trinity.algorithm.sample_strategy.strategies import CheckedStrategy
    from trinity.buffer.pipeline import ExperiencePipeline
    from trinity.buffer.step_file import RolloutFile
    from trinity.buffer.task_source import TaskSource
    from trinity.common.config import Config, ExperienceBufferConfig
    from trinity.common.config.inference_model import InferenceModelConfig
    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.ports import (
        EndpointOpener,
        ExperienceSink,
        Monitor,
        StorageUse,
        StrategySource,
        SyncMethod,
        Trainer,
    )
    from trinity.explorer.rollout_buffer import RolloutBuffer
    from trinity.extend import Component, PluginManager
    from trinity.runtime.audited_rows import RowAudit
    from trinity.runtime.record.rundir import RunDir


def make_storage(
    config: Config, manager: PluginManager, *, chat_format: ChatFormat | None, rundir: RunDir
) -> Storage:
    """Return the experience buffer: where groups are in flight, one that is read group by group."""
    storage = _experience_buffer(config, manager, chat_format=chat_format, rundir=rundir)
    return group_storage_of(storage) if policy_of(config).in_groups else storage


def _experience_buffer(
    config: Config, manager: PluginManager, *, chat_format: ChatFormat | None, rundir: RunDir
) -> Storage:
    """Return the storage between explorer and trainer."""
    buffer = config.buffer.trainer_input.experience_buffer
    total_epochs = None if config.buffer.total_steps is not None else config.buffer.total_epochs
    return _storage(
        buffer,
        manager,
        chat_format=chat_format,
        total_epochs=total_epochs,
        use=use_of_buffer(config, rundir=rundir),
    )


def _storage(
    buffer: ExperienceBufferConfig,
    manager: PluginManager,
    *,
    chat_format: ChatFormat | None,
    total_epochs: int | None,
    use: StorageUse | None = None,
) -> Storage:
    replay, name, given = buffer.replay_buffer, buffer.storage_type, {}
    if replay.enable:
        judge = manager.find("priority_fn", replay.priority_fn)
        name, given = "replay", {"priority_fn": _made(judge, replay.priority_fn_args)}
    storage: Storage = _made(
        manager.find("storage", name),
        config=buffer,
        path=buffer.path,
        chat_format=chat_format,
        total_epochs=total_epochs,
        use=use,
        **given,
    )
    return storage


def make_ready_source(storage: Storage, rollouts: RolloutBuffer) -> ReadyRows | ReadyGroups:
    """Return what lets the strategy read from ``storage`` only what is ready."""
    if isinstance(storage, GroupStorage):
        return ReadyGroups(storage, rollouts)
    return ReadyRows(storage, rollouts)


def rows_of_a_batch(config: Config, manager: PluginManager) -> int:
    """Return how many experiences an optimizer step reads from the experience buffer, 1 or more.

    Raises:
        ConfigError: it is none, and nothing else would end the training.
    """
    size, name = config.buffer.train_batch_size, config.algorithm.sample_strategy
    num_read = int(_strategy(config, manager).num_read(size))
    has_one_side = config.mode in {"explore", "train"}
    if num_read < 1 and not has_one_side and config.trainer.total_steps is None:
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
    source: Storage | ReadyRows | ReadyGroups,
    storage: Storage,
    chat_format: ChatFormat | None,
    rows: RowAudit | None = None,
) -> CheckedStrategy:
    """Return the sample strategy, reading from ``source`` and from the auxiliary buffers.

    ``storage`` is told which step reads; ``rows``, if any, looks at what is read and given.
    """
    from trinity.algorithm.sample_strategy.strategies import CheckedStrategy

    strategy = _strategy(config, manager)
    strategy.bind(
        {
            "experience_buffer": source if rows is None else AuditedSource(source, rows),
            **_auxiliary_sources(config, manager, chat_format=chat_format),
        },
        train_batch_size=config.buffer.train_batch_size,
        read_timeout_s=config.buffer.trainer_input.experience_buffer.max_read_timeout,
    )
    return CheckedStrategy(
        strategy,
        read_for=None if type(storage).read_for is Storage.read_for else storage.read_for,
        sampled=None if rows is None else rows.sampled,
    )


def _strategy(config: Config, manager: PluginManager) -> SampleStrategy:
    strategy_class = manager.load("sample_strategy", config.algorithm.sample_strategy)
    strategy: SampleStrategy = strategy_class(**config.algorithm.sample_strategy_args)
    return strategy


def _auxiliary_sources(
    config: Config, manager: PluginManager, *, chat_format: ChatFormat | None
) -> dict[str, StrategySource]:
    """Return the auxiliary buffers by name; each begins anew where it ends."""
    return {
        name: _storage(buffer, manager, chat_format=chat_format, total_epochs=None)
        for name, buffer in config.buffer.trainer_input.auxiliary_buffers.items()
    }


def make_trainer(
    config: Config, manager: PluginManager, *, total_steps: int, group: Any = None
) -> Trainer:
    """Return the trainer of a run of ``total_steps`` optimizer steps.

    Args:
        config: a resolved configuration.
        manager: the plugins.
        total_steps: of the run.
        group: processes of ``torch.distributed`` that share each batch; None: this one.
    """
    trainer: Trainer = _made(
        manager.find("trainer", config.trainer.trainer_type),
        config=config,
        model_path=config.model.model_path,
        total_steps=total_steps,
        seed=config.seed,
        group=group,
    )
    return trainer


def make_engine(
    config: Config,
    manager: PluginManager,
    *,
    module: Any = None,  # Any: a transformers model
    rollout: InferenceModelConfig | None = None,
) -> Any:  # Any: a registered rollout engine
    """Return one rollout engine.

    Args:
        config: a resolved configuration.
        manager: the plugins.
        module: the trainer's model, to be used as it is; None: the engine loads its own.
        rollout: the section of the engine; None: of the trained model.
    """
    rollout, kind = rollout or config.explorer.rollout_model, KINDS["rollout_engine"]
    component = manager.find("rollout_engine", rollout.engine_type)
    cls = component.load()
    parameters = parameters_of(cls)
    arguments = engine_arguments(parameters, rollout=rollout, model=config.model)
    if kind.can(component, "shares_module"):
        arguments["module"] = module
    if parameters is not None and "in_lockstep" in parameters:
        arguments["in_lockstep"] = not policy_of(config).in_groups
    return adapted(cls(**arguments), component, in_flight=config.synchronizer.in_flight)


def make_endpoints(
    config: Config, manager: PluginManager, *, number: int = 0
) -> EndpointOpener | None:
    """Return what opens the endpoints of rollouts; None: the configuration wants none.

    Args:
        config: a resolved configuration.
        manager: the plugins.
        number: of the engine that the process belongs to: each listens at a port of its own.
    """
    rollout = config.explorer.rollout_model
    if not (rollout.enable_openai_api or config.explorer.auxiliary_models):
        return None
    opener: EndpointOpener = KINDS["endpoint"].made(
        manager.load("endpoint", "openai"),
        {},
        host=config.explorer.listen_address,
        port=0 if rollout.base_port is None else rollout.base_port + number,
        logs_requests=rollout.enable_log_requests,
        api_key=rollout.api_key,
    )
    return opener


def make_sync(
    config: Config, manager: PluginManager, *, engines: Any, sender: Any = None
) -> SyncMethod:
    """Return what brings weights to these engines.

    Args:
        config: a resolved configuration.
        manager: the plugins.
        engines: all of them (Any: in this process or in others).
        sender: the trainer's process (Any: as the runtime has it); None: it is this one.
    """
    method: SyncMethod = KINDS["sync_method"].made(
        manager.load("sync_method", _sync_method(config)),
        {},
        engines=engines,
        sender=sender,
        config=config,
    )
    return method


def sync_method_can(config: Config, manager: PluginManager, word: str) -> bool:
    """Return whether the sync method has an ability, such as ``sender`` or ``one_machine``."""
    component = manager.find("sync_method", _sync_method(config))
    return KINDS["sync_method"].can(component, word)


def _sync_method(config: Config) -> str:
    """Return the method's name: what came from another run by a folder is in memory."""
    return "memory" if config.is_standalone else config.synchronizer.sync_method


def make_experience_pipeline(
    config: Config,
    manager: PluginManager,
    *,
    sink: ExperienceSink,
    rundir: RunDir,
    rows: RowAudit | None = None,
) -> ExperiencePipeline:
    """Return what experiences pass on their way from the explorer to ``sink``.

    Args:
        config: a resolved configuration.
        manager: the plugins.
        sink: where they go.
        rundir: of the run.
        rows: looks at them on their way; None: nobody does.
    """
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
        audit=rows,
    )


def _raw_experiences(config: Config, *, rundir: RunDir) -> RolloutFile | None:
    """Return where the newest rollouts are kept as the workflow gave them; None: nowhere."""
    from trinity.buffer.step_file import RolloutFile

    settings = config.data_processor.experience_pipeline
    if not settings.save_input:
        return None
    path = Path(settings.input_save_path or rundir.buffer / "explorer_output.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    setting = "data_processor.experience_pipeline.input_save_path"
    return RolloutFile(path, setting=setting, max_bytes=settings.max_input_gb * 1e9)


def make_monitors(
    config: Config, manager: PluginManager, *, rundir: RunDir
) -> Mapping[str, list[Monitor]]:
    """Return the monitors of each role: the chosen ones, and the file of JSON lines."""
    chosen = [config.monitor, *config.monitor.also]
    arguments = {"jsonl": {}} | {one.monitor_type: one.monitor_args or {} for one in chosen}
    components = {manager.find("monitor", name): given for name, given in arguments.items()}
    return {
        role: [_monitor(one, given, rundir=rundir, role=role) for one, given in components.items()]
        for role in ("explorer", "trainer", "synchronizer")
    }


def _monitor(
    component: Component, arguments: Mapping[str, Any], *, rundir: RunDir, role: str
) -> Monitor:
    monitor: Monitor = _made(component, arguments, directory=rundir.monitor, role=role)
    return monitor


def _made(component: Component, own: Mapping[str, Any] | None = None, **provided: Any) -> Any:
    """Return a part of the component, as an object of its kind's base class."""
    made = KINDS[component.kind].made(component.load(), own or {}, **provided)
    return adapted(made, component)


def steps_of_tasks(config: Config, manager: PluginManager, *, tasks: TaskSource | None) -> int:
    """Return the train steps of a run whose groups are all kept."""
    assert tasks is not None
    replay = config.buffer.trainer_input.experience_buffer.replay_buffer
    return policy_of(config).num_train_steps(
        num_steps=tasks.num_steps,
        rows=config.buffer.batch_size * (config.algorithm.repeat_times or 1),
        batch=rows_of_a_batch(config, manager),
        refills=replay.reuse_cooldown_time is not None,
    )


def steps_of_storage(config: Config, *, storage: Any) -> int | None:
    """Return the optimizer steps of mode ``train``, which reads what is stored.

    Args:
        config: a resolved configuration.
        storage: what is read (Any: it may have ``__len__``).

    Returns:
        None: explorers that are separate runs say when there is nothing more.

    Raises:
        ConfigError: the storage cannot tell how many experiences it holds.
    """
    if config.buffer.total_steps is not None:
        return config.buffer.total_steps
    if config.is_standalone:
        return None
    if "length" not in abilities_in(storage, "storage"):
        name = config.buffer.trainer_input.experience_buffer.storage_type
        raise ConfigError(
            f"storage {name} cannot tell how many experiences it holds, so nobody knows how many "
            f"steps mode train has. Set trainer.total_steps, or give it __len__ and the word "
            f"length in provides."
        )
    return max(1, -(-len(storage) // config.buffer.train_batch_size))
