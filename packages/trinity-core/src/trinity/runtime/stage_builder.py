"""The workers of a stage that stand in the driver, wherever the others are.

StageBuilder    tasks, the explorer's logic, buffer, strategy, monitors
build.py        and beside them engines and trainer, in the same process
ray/build.py    or engines, runners and the trainer's ranks, each in a process of its own
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from trinity.buffer.task_source import TaskSource, build_evaluation_sets
from trinity.explorer.rollout_buffer import RolloutBuffer
from trinity.runtime.assembly import (
    make_experience_pipeline,
    make_monitors,
    make_ready_source,
    make_storage,
    make_strategy,
    rows_of_a_batch,
    steps_of_storage,
    steps_of_tasks,
)
from trinity.runtime.audited_rows import RowAudit
from trinity.runtime.determinism import is_in_order
from trinity.runtime.group_storage import GroupSink, GroupStorage, LedgerGroupStorage
from trinity.runtime.observers import StepHook
from trinity.runtime.plugin_adapter import abilities_in
from trinity.runtime.record.monitors import Monitors
from trinity.runtime.record.samples import TrainedHistory
from trinity.runtime.record.shown_samples import ShownSamples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trinity.buffer.pipeline import ExperiencePipeline
    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.ports import SyncMethod, Trainer
    from trinity.runtime.observers import Observer
    from trinity.runtime.parts import Parts


class StageBuilder(ABC):
    """Builds what the stage's mode needs.

    Args:
        parts: of the stage, to which all is added.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._config = parts.config
        self._manager = parts.manager
        self._storage: Any = None  # Any: of the mode; None: it has none

    @abstractmethod
    def _chat_format(self) -> ChatFormat | None:
        """Return what turns rows of a file into tokens; None: there are none."""

    @abstractmethod
    def _make_trainer(self, *, total_steps: int) -> Trainer:
        """Return the trainer of so many optimizer steps; 0: nobody knows."""

    @abstractmethod
    def _make_scheduler(self) -> Any:  # Any: runs requests; with groups in flight, takes them
        """Return what runs requests, once there are engines."""

    @abstractmethod
    def _make_sync(self) -> SyncMethod:
        """Return what brings weights to the engines."""

    def build(self) -> None:
        """Add all that the mode needs.

        Raises:
            TrinityError: a model, a dataset or a component cannot be loaded.
        """
        parts, config, mode = self._parts, self._config, self._config.mode
        parts.observers += self._observers()
        if mode != "bench":
            parts.storage = self._storage = make_storage(
                config, self._manager, chat_format=self._chat_format(), rundir=parts.rundir
            )
            parts.is_in_order = is_in_order(config, self._manager)
            parts.rollouts = RolloutBuffer(
                parts.policy, batch=self._batch(), gives_again=self._storage.gives_again
            )
            if parts.audit.is_on and config.has_trainer:
                parts.audit.rows = _row_audit_of(parts)
        tasks = TaskSource(config) if mode in {"both", "explore"} else None
        if config.has_trainer:
            self._add_trainer(tasks)
        if mode in {"both", "explore", "bench"}:
            self._add_explorer(tasks)

    def _observers(self) -> Iterator[Observer]:
        """Yield who is told of each step; the history first: what it lacks was never trained."""
        config, rundir = self._config, self._parts.rundir
        yield TrainedHistory(rundir.path)
        monitors = make_monitors(config, self._manager, rundir=rundir)
        yield Monitors(monitors, audit=self._parts.audit)
        shown = ShownSamples.of(config, monitors, rundir=rundir)
        if shown is not None:
            yield shown
        yield StepHook(self._manager)
        yield self._parts.audit

    def _add_trainer(self, tasks: TaskSource | None) -> None:
        parts, config = self._parts, self._config
        parts.num_train_steps = config.trainer.total_steps
        if config.mode == "train" and parts.num_train_steps is None:
            parts.num_train_steps = steps_of_storage(config, storage=self._storage)
        num_steps = parts.num_train_steps or 0  # 0: a service goes on until it is stopped
        if tasks is not None:
            num_steps = num_steps or steps_of_tasks(config, self._manager, tasks=tasks)
        parts.trainer = self._make_trainer(total_steps=num_steps)
        source: Any = self._storage
        if config.mode != "train":
            source = make_ready_source(self._storage, parts.rollouts)
            parts.source = source
        parts.strategy = make_strategy(
            config,
            self._manager,
            source=source,
            storage=self._storage,
            chat_format=self._chat_format(),
            rows=parts.audit.rows,
        )

    def _add_explorer(self, tasks: TaskSource | None) -> None:
        parts, config = self._parts, self._config
        scheduler = self._make_scheduler()
        from trinity.explorer.continuous import ContinuousExplorer  # bring torch: what is started
        from trinity.explorer.explorer import Explorer  # in other processes is built meanwhile
        from trinity.runtime.record.evaluation_samples import EvaluationLog
        from trinity.runtime.record.samples import GB

        evaluation_sets = build_evaluation_sets(config)
        parts.has_evaluation = bool(evaluation_sets)
        common = {"evaluation_sets": evaluation_sets, "scheduler": scheduler}
        explorer: Explorer
        if isinstance(self._storage, GroupStorage) and tasks is not None:
            parts.in_turns = False
            explorer = parts.groups = ContinuousExplorer(
                config,
                tasks=tasks,
                pipeline=self._pipeline(),
                shelf=self._storage,
                rollouts=parts.rollouts,
                marks=self._marks,
                **common,
            )
        else:
            pipeline = self._pipeline() if tasks is not None else None
            explorer = Explorer(config, tasks=tasks, pipeline=pipeline, **common)
        parts.explorer = explorer
        if config.buffer.record_samples:
            limit, is_bench = int(config.buffer.max_samples_gb * GB), config.mode == "bench"
            log = EvaluationLog(parts.rundir.path, limit=limit, is_bench=is_bench)
            explorer.on_evaluated = log.evaluated
        if tasks is not None:
            parts.num_explore_steps = tasks.num_steps
        if parts.trainer is not None:
            parts.sync = self._make_sync()
            if config.is_colocated:
                from trinity.synchronizer.memory_sync import ColocatedSync

                parts.sync = parts.colocated = ColocatedSync(parts.sync, parts.engines)

    def _batch(self) -> int:
        """Return how much a train step consumes: whole groups, or rows."""
        if self._parts.policy.in_groups:
            return self._config.buffer.batch_size
        if self._config.mode in {"explore", "train"}:
            return 1
        return rows_of_a_batch(self._config, self._manager)

    def _marks(self) -> dict[str, Any]:
        return self._parts.files.of_explorer.marks()  # the stage's own, once all is built

    def _pipeline(self) -> ExperiencePipeline:
        parts, sink = self._parts, self._storage
        if isinstance(sink, GroupStorage):
            sink = GroupSink(sink)
        parts.writing = made = make_experience_pipeline(
            parts.config, parts.manager, sink=sink, rundir=parts.rundir, rows=parts.audit.rows
        )
        return made


def _row_audit_of(parts: Parts) -> RowAudit:
    """Return what follows the rows of a stage that trains, once there is its storage."""
    config, storage = parts.config, parts.storage
    assert storage is not None
    num_there: Callable[[], int] | None = storage.available
    if isinstance(storage, GroupStorage):
        is_ledger = isinstance(storage, LedgerGroupStorage)
        num_there = None if is_ledger else lambda: len(storage.waiting())
    # One that counts, or keeps a state, may have rows of others.
    elif storage.gives_again or abilities_in(storage, "storage") & {"counts", "state"}:
        num_there = None
    is_alone = config.mode == "both" and not config.buffer.trainer_input.auxiliary_buffers
    return RowAudit(
        parts.audit,
        num_there=num_there,
        knows_all=is_alone and num_there is not None,
        is_newest=parts.policy.is_always_newest,
    )
