"""What is told of each step, and to whom: metrics, history, samples, plugins, the display.

loop --> Observers: times, staleness --> each Observer of the stage, and the display
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from trinity.common.config.check_names import is_own
from trinity.common.metrics import numbers_in, with_prefix
from trinity.errors import TrinityError
from trinity.runtime.determinism import reads_in_order
from trinity.runtime.plugin_adapter import abilities_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports import Storage
    from trinity.explorer.explorer import ExploreResult
    from trinity.explorer.rollout_buffer import RolloutBuffer
    from trinity.extend import PluginManager
    from trinity.runtime.parts import Parts
    from trinity.runtime.schedule import Schedule

logger = logging.getLogger(__name__)


class Observer:
    """Told of each step of a stage, in the loop's thread; what it does not want does nothing."""

    def trained(self, step: int, experiences: Sequence[Experience]) -> None:
        """Take in what an optimizer step was trained on.

        Raises:
            CheckpointError: it cannot be written, and the run cannot go on without.
        """

    def record(self, role: str, metrics: Mapping[str, object], *, step: int) -> None:
        """Take in the metrics of a phase: a step or an evaluation of one role.

        Raises:
            OSError: the disk is full.
        """

    def flush(self) -> None:
        """Write out what is held: a checkpoint is being written."""

    def close(self) -> None:
        """Write out what is held; nothing is told any more."""


class TimeOuts(Observer):
    """Tells of the first rollout that was dropped because its time was up.

    Args:
        tell: is called with its step.
    """

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell: Callable[[int], None] | None = tell

    def record(self, role: str, metrics: Mapping[str, object], *, step: int) -> None:
        tell = self._tell
        if tell is not None and metrics.get("rollout/failed_runs/timeout"):
            self._tell = None
            tell(step)


class StepHook(Observer):
    """Calls the plugins' hook after each optimizer step."""

    def __init__(self, manager: PluginManager) -> None:
        self._step_finished = manager.hook("trinity_step_finished")

    def record(self, role: str, metrics: Mapping[str, object], *, step: int) -> None:
        if role == "trainer":
            self._step_finished(step=step, metrics=numbers_in(metrics)[0])


def record(parts: Parts, role: str, metrics: Mapping[str, object], *, step: int) -> None:
    """Give the metrics of a step to all observers.

    Raises:
        OSError: the disk is full.
    """
    if role == "trainer":
        metrics = parts.audit.stepped(metrics, step=step)
    for observer in parts.observers:
        observer.record(role, metrics, step=step)


def counts_of(storage: Storage) -> Metrics:
    """Return what became of the experiences in a replay buffer; empty: it does not say."""
    return {name: float(count) for name, count in storage.counts().items()}


class Observers:
    """Says to all observers of a stage, and to its display, what the loop did and how long it took.

    Args:
        parts: of the stage.
        schedule: of the run; says how far it is.
    """

    def __init__(self, parts: Parts, schedule: Schedule) -> None:
        self._parts, self._schedule = parts, schedule
        self._staleness = Staleness(
            parts.rollouts, in_turns=schedule.in_turns, is_bound=_is_bound(parts)
        )
        self._has_counts = "counts" in abilities_in(parts.storage, "storage")
        self._step_began: float | None = None  # of what follows the last sync
        self._last_end: float | None = None  # of a train step
        self._trained_at: deque[tuple[float, float]] = deque()  # beside a step that has not ended

    def began(self) -> None:
        """Show how far the run is."""
        parts = self._parts
        parts.display.began(
            total_steps=parts.total_steps,
            progress=self._schedule.progress,
            stage=parts.info.stage,
            has_explorer=parts.explorer is not None,
            has_trainer=parts.trainer is not None,
        )

    def resumed(self, rollouts: Mapping[str, Any] | None) -> None:
        """Note that the run goes on from a checkpoint (Any: the buffer's state in it)."""
        train_steps = self._schedule.progress.train_steps
        self._staleness.resumed(rollouts, train_steps=train_steps)

    def begin_step(self) -> None:
        if self._step_began is None:
            self._step_began = time.perf_counter()

    def explored(self, result: ExploreResult, *, began: float = 0.0, seconds: float = 0.0) -> None:
        """Tell of a rollout step; of a batch of groups its own metrics say how long it took."""
        parts, step = self._parts, self._schedule.progress.explore_steps
        metrics = result.metrics
        if parts.groups is None:
            self._staleness.explored(result.num_experiences)
            times = {"time/rollout_s": seconds}
            if not self._schedule.in_turns:
                times["time/trained_beside_s"] = self._trained_beside(began, began + seconds)
            metrics = times | metrics
        record(parts, "explorer", metrics, step=step)
        parts.display.explored(step, metrics)
        if not result.num_experiences:
            logger.warning("step %d left nothing to train on", step)

    def trained(
        self,
        batch: Sequence[Experience],
        metrics: Metrics,
        sampled: Metrics,
        *,
        began: float,
        sampled_s: float,
    ) -> None:
        """Tell of a train step.

        Raises:
            CheckpointError: the history cannot be written.
            TrinityError: a row is older than it can be.
        """
        parts, step, ended = self._parts, self._schedule.progress.train_steps, time.perf_counter()
        for observer in parts.observers:
            observer.trained(step, batch)
        if not self._schedule.in_turns:
            self._trained_at.append((began, ended))
        metrics |= sampled
        if self._has_counts and parts.storage is not None:
            metrics |= with_prefix("buffer", counts_of(parts.storage))
        metrics |= {"time/sample_s": sampled_s, "time/train_s": ended - began}
        metrics |= self._idle(ended - began, ended=ended)
        metrics |= self._staleness.of_step(step, sampled, num_rows=len(batch))
        record(parts, "trainer", metrics, step=step)
        if "actor/skipped_batch" in metrics:
            logger.warning("train step %d had no token to train on: all masked or left out", step)
        parts.display.trained(step, metrics)

    def synced(self, version: int, *, began: float) -> None:
        """Tell which policy version the engines have now."""
        self._staleness.synced()
        ended = time.perf_counter()
        step_s = ended - (began if self._step_began is None else self._step_began)
        self._step_began = None
        metrics = {
            "time/sync_s": ended - began,
            "time/step_s": step_s,
            "sync/model_version": float(version),
        }
        record(self._parts, "synchronizer", metrics, step=self._schedule.progress.explore_steps)

    def evaluated(self, metrics: Metrics, seconds: float) -> None:
        parts, progress = self._parts, self._schedule.progress
        progress.note_evaluation(metrics)
        version = {"sync/model_version": float(progress.weights_version)} if parts.sync else {}
        told = version | metrics | {"time/eval_s": seconds}
        record(parts, "explorer", told, step=progress.explore_steps)
        parts.display.evaluated(progress.explore_steps, metrics)

    def _trained_beside(self, began: float, ended: float) -> float:
        """Return the seconds that were trained beside a rollout step; steps come in order."""
        spans = self._trained_at
        beside_s = sum(max(0.0, min(end, ended) - max(begin, began)) for begin, end in spans)
        while spans and spans[0][1] <= ended:
            spans.popleft()
        return beside_s

    def _idle(self, train_s: float, *, ended: float) -> Metrics:
        """Return which part of the time since the last train step the trainer waited."""
        if self._schedule.in_turns or self._schedule.policy.in_rounds:
            return {}
        since, self._last_end = self._last_end, ended
        return {} if since is None else {"idle/trainer": max(0.0, 1.0 - train_s / (ended - since))}


def _is_bound(parts: Parts) -> bool:
    """Return whether the policy bounds how old the rows of each batch can be."""
    if parts.config.mode != "both" or not parts.is_in_order:
        return False
    strategy = parts.manager.find("sample_strategy", parts.config.algorithm.sample_strategy)
    return is_own(strategy) and reads_in_order(parts.config, parts.manager)


_VERSION = "sample/model_version"
_REMEDY = (
    "If a workflow or an operator brought them with an info['model_version'] of their own, as rows "
    "of another model or of another day have it, leave that out. Otherwise it is a fault of the "
    "runtime: please report it with trinity.log."
)


class Staleness:
    """Tells how old rows are when they are trained, and refuses what the policy rules out.

    What began before this start is left out: other settings may have let it be older.

    Args:
        buffer: of the run, with its policy.
        in_turns: whether rollouts never begin beside a train step.
        is_bound: whether a batch is trained as soon as it is there, oldest first, which nobody
            knows of a strategy or a storage that somebody brought.
    """

    def __init__(self, buffer: RolloutBuffer, *, in_turns: bool, is_bound: bool) -> None:
        policy = buffer.policy
        self._buffer = buffer
        self._policy = policy.in_turns() if in_turns else policy
        self._is_bound = is_bound
        self._is_told = not in_turns and not policy.in_rounds  # else it follows from the settings
        self._most, self._unit = 0, 0  # rows of a rollout step; divisor of a batch and of all steps
        self._num_earlier = 0  # rows that began before the first sync after a restart
        self._last_earlier = 0  # the youngest rollout step of an earlier start
        self._is_going_on = False  # rows of it are left, or weights have not moved since
        self._most_before, self._last_before = 0, 0  # of groups of an earlier start; until a step

    def resumed(self, rollouts: Mapping[str, Any] | None, *, train_steps: int) -> None:
        """Leave out what the buffer holds now: an earlier start began it.

        Args:
            rollouts: the state of the buffer in the checkpoint (Any: json).
            train_steps: how many were done.
        """
        if self._buffer.policy.in_groups and rollouts is not None:
            size, wider = self._buffer.batch, self._buffer.widest_policy
            num_steps = -(-(len(rollouts["slots"]) + wider.window - 1) // size)
            self._most_before = wider.max_off_policy_steps(batch=size, most=1)
            self._last_before = train_steps + num_steps
            return
        self._is_going_on, self._last_earlier = True, self._buffer.begun
        for one in self._buffer.slots.values():
            self.explored(one.left)

    def explored(self, count: int) -> None:
        """Note how many rows a rollout step left."""
        self._most = max(self._most, count)
        self._unit = math.gcd(self._unit or self._buffer.batch, count)
        self._num_earlier += count if self._is_going_on else 0

    def synced(self) -> None:
        """Note that the rollouts have the trainer's weights.

        As long as rows of an earlier start are left, what begins may get older than it could alone.
        """
        if self._is_going_on and not self._buffer.num_rows(last=self._last_earlier):
            self._is_going_on, self._num_earlier = False, self._buffer.num_rows()

    def of_step(self, step: int, sampled: Mapping[str, object], *, num_rows: int) -> Metrics:
        """Return the off-policy steps of the rows of a train step; empty: nobody knows them.

        Args:
            step: the train step, from 1.
            sampled: what the sample strategy says of its batch.
            num_rows: how many rows it has.

        Raises:
            TrinityError: a row has more than the policy allows.
        """
        most = self._bound(step) if self._is_bound else None
        self._num_earlier = max(0, self._num_earlier - num_rows)
        oldest, mean = (sampled.get(f"{_VERSION}/{name}") for name in ("min", "mean"))
        if not isinstance(oldest, float) or not isinstance(mean, float):
            return {}
        if most is not None and step - 1 - oldest > most:
            raise TrinityError(self._too_old(step, oldest, most=most))
        return {"age/max": step - 1 - oldest, "age/mean": step - 1 - mean} if self._is_told else {}

    def _bound(self, step: int) -> int | None:
        """Return the most off-policy steps that a row can have now; None: nobody knows."""
        size = self._buffer.batch
        if self._policy.in_groups:
            before = self._most_before if step <= self._last_before else 0
            return max(self._policy.max_off_policy_steps(batch=size, most=1), before)
        if self._num_earlier:
            return None
        over = size - (self._unit or size)
        return self._policy.max_off_policy_steps(batch=size, most=self._most, most_over=over)

    def _too_old(self, step: int, oldest: float, *, most: int) -> str:
        what, keys = "experiences", "explorer.max_inflight_batches, synchronizer.sync_interval"
        if self._policy.in_groups:
            what, keys = "a group", "explorer.max_inflight_batches, explorer.window"
        if self._policy.in_rounds:
            keys = "synchronizer.sync_interval, synchronizer.sync_offset"
        return (
            f"optimizer step {step} got {what} that weights of version {oldest:.0f} made, "
            f"{step - 1 - oldest:.0f} steps before, and none can be more than {most} old "
            f"({keys}). {_REMEDY}"
        )
