"""Explorer, strategy and trainer of a run that is one side alone: they wait for the other."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trinity.runtime.assembly import rows_of_a_batch

from trinity_ledger.coordinator import Coordinator
from trinity_ledger.storage import TooOldError
from trinity_ledger.weights_folder import WeightsFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from trinity.common.metrics import Metrics
    from trinity.common.ports import RolloutEngine, Trainer, WeightSnapshot
    from trinity.common.sync_policy import SyncPolicy
    from trinity.explorer.explorer import ExploreResult
    from trinity.explorer.groups import FailedAttempts
    from trinity.runtime.parts import Parts
    from trinity.runtime.roles import BatchSource, ExplorerRole

    from trinity_ledger.database import Database
    from trinity_ledger.ledger import Ledger


def connected(
    parts: Parts, *, database: Callable[[], Database], weights: Path, ledger: Ledger
) -> Coordinator:
    """Let the parts of one side wait for the other; return what they do it by.

    Args:
        parts: of the run of this side.
        database: gives a connection of its own to the ledger.
        weights: folder of those that explorers are to have.
        ledger: that the trainer waits for.

    Raises:
        ConfigError: another process is this side of the ledger.
    """
    num_rows = 0 if parts.trainer is None else rows_of_a_batch(parts.config, parts.manager)
    coordinator = Coordinator(parts, database=database, weights=WeightsFolder(weights))
    if parts.explorer is not None:
        parts.explorer = StandaloneExplorer(
            parts.explorer, coordinator, engines=parts.engines, parts=parts
        )
        return coordinator
    assert parts.trainer is not None
    assert parts.strategy is not None
    parts.trainer = trainer = StandaloneTrainer(parts.trainer, coordinator, policy=parts.policy)
    coordinator.presence.want(num_rows)
    parts.strategy = StandaloneStrategy(
        parts.strategy, coordinator, trainer=trainer, ledger=ledger, num_rows=num_rows
    )
    return coordinator


class StandaloneExplorer:
    """Waits for worker before each step, and takes the newest weights.

    Args:
        explorer: of this run.
        coordinator: with the trainer.
        engines: that answer the explorer.
        parts: of this run.
    """

    def __init__(
        self,
        explorer: ExplorerRole,
        coordinator: Coordinator,
        *,
        engines: Sequence[RolloutEngine],
        parts: Parts,
    ) -> None:
        config = parts.config
        self._explorer, self._coordinator, self._engines = explorer, coordinator, engines
        self._policy = parts.policy
        self._num_tasks = config.buffer.batch_size
        self._gives = config.algorithm.repeat_times or 1
        self._loaded: tuple[int, str] = (0, "")  # version and digest
        self._since: int | None = None  # the first step of this process

    @property
    def failed_attempts(self) -> FailedAttempts:
        """Return those of the explorer."""
        return self._explorer.failed_attempts

    def explore_step(self, step: int) -> ExploreResult:
        """Run the tasks of a step when there is room for them.

        Raises:
            StopIteration: there are no more tasks, the trainer needs none, or the run is to stop.
            TrinityError: nobody has heard of the trainer for ``sync_timeout``.
        """
        began, batch = time.perf_counter(), f"{self._coordinator.name}:{step}"
        self._coordinator.wait(
            lambda: self._has_capacity(batch),
            what="room for a step's tasks",
            of=self._coordinator.trainers,
        )
        waited = time.perf_counter() - began
        self._since = step if self._since is None else self._since
        try:
            before = step - self._since  # steps of this process
            if self._policy.pull_point(before) == before:
                self._take_weights()
            result = self._explorer.explore_step(step)
        finally:
            self._coordinator.presence.step_ended(self._coordinator.side, batch=batch)
        self._coordinator.note(step=step)
        result.metrics["time/wait_trainer_s"] = waited
        result.metrics["sync/model_version"] = float(self._loaded[0])
        return result

    def evaluate(self, step: int) -> Metrics:
        """Run all evaluation tasks with the newest weights; one asked to stop waits for none."""
        with suppress(StopIteration):
            self._take_weights()
        version = {"sync/model_version": float(self._loaded[0])}
        return version | self._explorer.evaluate(step)

    def state_dict(self) -> dict[str, Any]:
        """Return where the tasks stand."""
        return self._explorer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._explorer.load_state_dict(state)

    def close(self) -> None:
        """Close the explorer; safe to call twice."""
        self._explorer.close()

    def _has_capacity(self, batch: str) -> bool:
        if any(side.is_finished for side in self._coordinator.trainers()):
            raise StopIteration
        return self._coordinator.presence.issue(
            self._coordinator.side,
            batch=batch,
            num_tasks=self._num_tasks,
            capacity=self._policy.max_active * self._num_tasks,
            gives=self._gives,
        )

    def _take_weights(self) -> None:
        found = self._coordinator.newest_weights(but=self._loaded)
        if found is None:
            return
        snapshot, digest = found
        for engine in self._engines:
            engine.load_weights(snapshot)
        self._loaded = (snapshot.version, digest)
        self._coordinator.note(version=snapshot.version)


class StandaloneTrainer:
    """Publishes its weights when the policy says so."""

    def __init__(self, trainer: Trainer, coordinator: Coordinator, *, policy: SyncPolicy) -> None:
        self._trainer, self._coordinator, self._policy = trainer, coordinator, policy
        self._is_ahead = False  # of what the explorers may have, by a step or more

    def train_step(self, experiences: Any, *, step: int) -> Metrics:
        """Return the metrics of one optimizer step (Any: the strategy's batch)."""
        metrics = self._trainer.train_step(experiences, step=step)
        began = time.perf_counter()
        self._is_ahead = True
        if self._policy.is_published(train_steps=step, version=step - 1):
            self.publish()
            metrics = {**metrics, "time/publish_s": time.perf_counter() - began}
        self._coordinator.note(step=step)
        return metrics

    def publish(self) -> None:
        """Write the weights for the explorers."""
        self._is_ahead = False
        snapshot = self._trainer.snapshot(copy=False)
        self._coordinator.publish(snapshot)
        self._coordinator.note(version=int(snapshot.version))

    def publish_if_ahead(self) -> None:
        """Write weights that the explorers lack, though an interval is not full."""
        if self._is_ahead:
            self.publish()

    def snapshot(self, *, copy: bool) -> WeightSnapshot:
        """Return the weights."""
        return self._trainer.snapshot(copy=copy)

    def save(self, directory: Path) -> None:
        """Write what :meth:`load` needs."""
        self._trainer.save(directory)

    def load(self, directory: Path) -> None:
        """Go on from what :meth:`save` wrote."""
        self._trainer.load(directory)

    def close(self) -> None:
        """Free what the trainer holds."""
        self._trainer.close()


class StandaloneStrategy:
    """Waits until a batch is there, or until nobody explores any more."""

    def __init__(
        self,
        strategy: BatchSource,
        coordinator: Coordinator,
        *,
        trainer: StandaloneTrainer,
        ledger: Ledger,
        num_rows: int,
    ) -> None:
        self._strategy, self._coordinator = strategy, coordinator
        self._trainer, self._ledger, self._num_rows = trainer, ledger, num_rows
        self._is_first = True

    def sample(self, step: int) -> tuple[Any, Metrics]:
        """Return the batch of a step and metrics (Any: as the strategy hands it on).

        Raises:
            StopIteration: all explorers are done and nothing is left, or the run is to stop.
            TrinityError: nobody has heard of the explorers for ``sync_timeout``.
        """
        if self._is_first and (step > 1 or self._coordinator.presence.published() is not None):
            self._trainer.publish()  # explorers may have weights that were undone
        self._is_first = False
        self._coordinator.note(step=step - 1)
        presence = self._coordinator.presence
        presence.want(self._num_rows)
        sampled: list[tuple[Any, Metrics]] = []
        self._coordinator.wait(
            lambda: self._is_sampled(step, sampled),
            what=f"{self._num_rows} experiences",
            of=presence.explorers,
        )
        return sampled[0]

    def put_back(self, experiences: Any) -> None:
        """Give back what was sampled last and not used."""
        self._strategy.put_back(experiences)

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return self._strategy.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self._strategy.load_state_dict(state)

    def _is_sampled(self, step: int, sampled: list[tuple[Any, Metrics]]) -> bool:
        """Sample once there is enough; what is too old counts no more afterwards."""
        if self._ledger.num_waiting() < self._num_rows and not self._ledger.are_writers_finished():
            return False
        try:
            sampled.append(self._strategy.sample(step))
        except TooOldError:
            self._trainer.publish_if_ahead()  # or all that comes would be too old again
            return False
        return True
