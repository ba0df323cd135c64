"""The workers of one stage, introduced to each other."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trinity.common.sync_policy import policy_of
from trinity.errors import TrinityError
from trinity.explorer.rollout_buffer import RolloutBuffer
from trinity.runtime.audit import Audit
from trinity.runtime.checkpoint_writer import CheckpointWriter
from trinity.runtime.error_context import try_to
from trinity.runtime.record.checkpoint import CheckpointStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.common.experience import Experience
    from trinity.common.ports import (
        Peers,
        RolloutEngine,
        Storage,
        SyncMethod,
        Trainer,
        WeightSnapshot,
    )
    from trinity.common.sync_policy import SyncPolicy
    from trinity.extend import PluginManager
    from trinity.runtime.display import Display
    from trinity.runtime.interrupt import Interrupt
    from trinity.runtime.observers import Observer
    from trinity.runtime.record.rewind import GrowingFiles
    from trinity.runtime.record.rundir import RunDir
    from trinity.runtime.roles import (
        BatchSource,
        Closable,
        EngineWeights,
        ExplorerRole,
        GroupsRole,
        ReadySource,
        WritingRole,
    )
    from trinity.synchronizer.memory_sync import ColocatedSync

logger = logging.getLogger(__name__)

QUIET_S = 60.0  # for operators and writes that a lost worker broke off


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What the lifecycle hooks are told about a run."""

    directory: Path
    config: Config
    stage: str  # "": a run without stages


@dataclass(frozen=True, slots=True)
class Restored:
    """The weights that engines got from a checkpoint's ``engine/``."""

    version: int
    snapshot: WeightSnapshot | None  # None: the model's own, or the engines' process has them


@dataclass(kw_only=True)
class Parts:
    """Everything that the loop uses; who is not part of the mode is None."""

    config: Config
    rundir: RunDir
    info: RunInfo
    manager: PluginManager
    display: Display
    interrupt: Interrupt
    audit: Audit = field(init=False)  # looks at what the others do
    policy: SyncPolicy = field(init=False)  # when weights move
    writer: CheckpointWriter = field(init=False)  # of all that they hold
    rollouts: RolloutBuffer = field(init=False)  # slots, and what of them may be trained
    files: GrowingFiles = field(init=False, repr=False)  # that the stage, which sets it, appends to
    in_turns: bool = True  # whether no rollout begins beside a train step
    explorer: ExplorerRole | None = None
    groups: GroupsRole | None = None  # the explorer, where groups begin one by one
    engines: Sequence[RolloutEngine] = ()
    trainer: Trainer | None = None
    strategy: BatchSource | None = None  # the sample strategy, in a CheckedStrategy
    source: ReadySource | None = None
    storage: Storage | None = None  # the strategy reads it by an AuditedSource
    sync: SyncMethod | None = None
    colocated: ColocatedSync | None = None  # the same, where engines sleep in train steps
    writing: WritingRole | None = None  # between the explorer and the storage
    engine_weights: EngineWeights | None = None  # None: the engines stand in this process
    restored: Restored | None = None  # what the engines were given that a checkpoint kept for them
    is_in_order: bool = False  # whether the storage's `waiting` has the rows as they were written
    peers: Peers | None = None  # the other side, where that is a run of its own
    workers: Closable | None = None  # the processes of a run over Ray
    observers: list[Observer] = field(default_factory=list)  # told of each step, in this order
    num_explore_steps: int = 0
    num_train_steps: int | None = None  # None: whatever the explorer's experiences give
    has_evaluation: bool = False
    stop_reason: str = ""  # why an advisor ends the run
    in_hand: Sequence[Experience] = ()  # the batch that was read and is not trained yet

    def __post_init__(self) -> None:
        self.audit = Audit(self.config, self.manager)
        self.writer = CheckpointWriter(self)
        self.policy = policy_of(self.config)
        self.rollouts = RolloutBuffer(self.policy, batch=1)

    @property
    def total_steps(self) -> int:
        """Return the number of steps that the display counts to; 0: there is no end."""
        if self.config.is_plugin_mode:
            return 0
        if self.explorer is not None and self.num_explore_steps:
            return self.num_explore_steps
        return self.num_train_steps or 0

    @property
    def checkpoints(self) -> CheckpointStore:
        return CheckpointStore(self.rundir.path)

    def put_back_batch(self) -> None:
        """Give the buffer back the batch that was read last and could not be trained."""
        batch, self.in_hand = self.in_hand, ()
        if batch and self.strategy is not None:
            self.strategy.put_back(batch)
        if self.groups is not None:
            self.groups.put_back()

    def connect(self) -> None:
        """Let the workers wait for the other side, where that is a run of its own.

        Raises:
            ConfigError: another process is this side of the run.
        """
        if self.config.is_standalone and self.storage is not None:
            self.peers = self.storage.connect(self)

    def finish(self) -> None:
        """Say that the run did all that it was asked for, where another one waits for it."""
        if self.peers is not None:
            self.peers.finish()

    def close(self) -> None:
        """Close every worker, the last opened first; safe to call twice.

        One that fails to close is named, and the others are closed all the same.
        """
        workers = [
            self.explorer,
            *self.engines,
            self.storage,
            self.trainer,
            self.workers,
            self.peers,
        ]
        for worker in workers:
            if worker is not None:
                try_to(worker.close, failure=f"{type(worker).__qualname__} did not close")
        for observer in self.observers:
            observer.close()
        self.observers = []

    def check_quiet(self) -> None:
        """Hold that an explore step that was left alone writes no more, after :meth:`close`.

        Raises:
            TrinityError: it still does.
        """
        if not self._is_quiet(timeout_s=QUIET_S):
            raise TrinityError(
                f"the experiences of an explore step that was broken off are still on their way "
                f"after {QUIET_S:.0f} s, and the run cannot go on beside them: an experience "
                f"operator takes that long. Run the same command again: it goes on from the last "
                f"checkpoint."
            )

    def leave_quiet(self, *, waits: bool) -> None:
        """Leave no step that still writes, after :meth:`close`; say it where one is left.

        Args:
            waits: False: look, and do not wait for it.
        """
        timeout_s = QUIET_S if waits else 0.0
        if not self._is_quiet(timeout_s=timeout_s):
            logger.warning(
                "the run is over, and an explore step that was broken off is not, %.0f s later: an "
                "experience operator or the write after it takes that long. What the operator "
                "makes is dropped. End this process before you start the run again.",
                timeout_s,
            )

    def _is_quiet(self, *, timeout_s: float) -> bool:
        return self.writing is None or self.writing.is_over(timeout_s=timeout_s)
