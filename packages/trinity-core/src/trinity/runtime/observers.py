"""What is told of each step, and to whom: metrics, history, samples, plugins, the display.

loop --> Observers: times, staleness --> each Observer of the stage, and the display
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from trinity.common.config.check_names import is_own
from trinity.common.metrics import numbers_in, with_prefix
from trinity.runtime.determinism import reads_in_order
from trinity.runtime.staleness import Staleness

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.explorer.explorer import ExploreResult
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
        self._manager = manager

    def record(self, role: str, metrics: Mapping[str, object], *, step: int) -> None:
        if role == "trainer":
            numbers, _ = numbers_in(metrics)
            self._manager.call("trinity_step_finished", step=step, metrics=numbers)


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
        """Note that something begins after a sync, if nothing has."""
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
        parts.record("explorer", metrics, step=step)
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
        parts.note_trained(step, batch)
        if not self._schedule.in_turns:
            self._trained_at.append((began, ended))
        metrics |= sampled | with_prefix("buffer", parts.buffer_counts())
        metrics |= {"time/sample_s": sampled_s, "time/train_s": ended - began}
        metrics |= self._idle(ended - began, ended=ended)
        metrics |= self._staleness.of_step(step, sampled, num_rows=len(batch))
        parts.record("trainer", metrics, step=step)
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
        self._parts.record("synchronizer", metrics, step=self._schedule.progress.explore_steps)

    def evaluated(self, metrics: Metrics, seconds: float) -> None:
        parts, progress = self._parts, self._schedule.progress
        progress.note_evaluation(metrics)
        version = {"sync/model_version": float(progress.weights_version)} if parts.sync else {}
        told = version | metrics | {"time/eval_s": seconds}
        parts.record("explorer", told, step=progress.explore_steps)
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
