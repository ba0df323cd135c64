"""What an optimizer step, a sync and a checkpoint of a run are, and what each leaves behind.

When which of them comes is the story in ``runtime/pipeline.py``. Each changes the run's progress,
then its records, then what the person sees.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.common.metrics import with_prefix
from trinity.errors import CheckpointError
from trinity.runtime.ages import Ages
from trinity.runtime.boundary import boundary
from trinity.runtime.pace import pace_of
from trinity.runtime.record.progress import Progress
from trinity.runtime.steps import trained

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.explorer.explorer import ExploreResult
    from trinity.runtime.parts import Parts

__all__ = ["Interrupted", "Phases"]

logger = logging.getLogger(__name__)


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop; everything up to the last whole phase is saved."""


class Phases:
    """The phases of one stage, for the pipeline that puts them in an order.

    Args:
        parts: of the stage.

    Attributes:
        progress: how far the run is.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._pace = pace_of(parts.config, batch_size=parts.batch_size)
        self._ages = Ages(parts.config)
        self.progress = Progress()
        self._explorer_state: dict[str, Any] = {}
        self._saved: Progress | None = None  # where the last checkpoint of this process stands
        self._in_hand: list[Experience] = []  # what is read and not trained yet
        self._step_began: float | None = None  # the first explore step after the last sync

    def resume(self, progress: Progress, *, flight: Mapping[str, Any] | None = None) -> None:
        """Stand where a checkpoint stands that was loaded, with what it says of groups."""
        self.progress = progress
        if flight is not None:
            self._ages.go_on(flight, trained=progress.trained)
        self._saved = progress.copy()

    def _tell_explored(self, result: ExploreResult, times: Metrics) -> None:
        parts, step, metrics = self._parts, self.progress.explored, times | result.metrics
        parts.record("explorer", metrics, step=step)
        parts.display.explored(step, metrics)
        if not result.num_experiences:
            logger.warning("step %d left nothing to train on", step)

    def _note_place(self) -> None:
        """Note where the explorer stands between two steps; one in flight is asked at a save."""
        if self._parts.flight is None:
            self._explorer_state = self._parts.explorer_state()

    def _num_ready(self) -> int:
        """Return how many experiences may be trained while a step is explored."""
        return self._pace.num_ready(self.progress)

    def _train_step(self, *, is_ahead: bool = False) -> None:
        parts, progress = self._parts, self.progress
        assert parts.trainer is not None
        assert parts.strategy is not None
        began = time.perf_counter()
        with boundary(f"sampling for optimizer step {progress.trained + 1}"):
            experiences, sampled = parts.strategy.sample(progress.trained + 1)
        waited = time.perf_counter() - began
        self._in_hand = experiences
        with boundary(f"optimizer step {progress.trained + 1}"):
            metrics = trained(parts.trainer, experiences, step=progress.trained + 1)
        self._in_hand = []
        progress.trained += 1
        progress.trained_experiences += len(experiences)
        parts.note_trained(progress.trained, experiences)
        if is_ahead:
            assert parts.source is not None
            progress.take_ahead(self._num_ready() - parts.source.num_due)
        elif parts.source is not None:
            progress.num_due = parts.source.num_due
        metrics |= sampled | with_prefix("buffer", parts.buffer_counts())
        train_s = time.perf_counter() - began
        metrics |= {"time/sample_s": waited, "time/train_s": train_s}
        metrics |= self._ages.of_step(
            progress.trained, sampled, train_s=train_s, num_rows=len(experiences)
        )
        parts.record("trainer", metrics, step=progress.trained)
        parts.display.trained(progress.trained, metrics)
        self._save_if_due()
        if not is_ahead:  # the step that is explored ends first
            self._stop_if_asked()

    def _sync(self) -> None:
        parts, progress = self._parts, self.progress
        progress.synced, progress.pulled = progress.explored, progress.trained
        if parts.sync is None or parts.trainer is None:
            return
        began = time.perf_counter()
        with boundary(f"the sync after explore step {progress.explored}"):
            version = parts.sync.sync(partial(parts.trainer.snapshot, copy=False))
            self._free_places()
        ended = time.perf_counter()
        step_s = ended - (began if self._step_began is None else self._step_began)
        self._step_began = None
        metrics = {
            "time/sync_s": ended - began,
            "time/step_s": step_s,
            "sync/model_version": float(version),
        }
        parts.record("synchronizer", metrics, step=progress.explored)

    def _free_places(self) -> None:
        """Let groups begin in the places of those that the engines' weights were trained on."""
        progress = self.progress
        if self._parts.flight is not None:
            is_all = progress.pulled == progress.trained and not progress.num_waiting
            self._parts.flight.loaded(progress.pulled, is_all=is_all)

    def _note_evaluation(self, metrics: Metrics, seconds: float) -> None:
        step = self.progress.explored
        self.progress.note_evaluation(metrics)
        version = {"sync/model_version": float(self.progress.pulled)} if self._parts.sync else {}
        self._parts.record("explorer", version | metrics | {"time/eval_s": seconds}, step=step)
        self._parts.display.evaluated(step, metrics)

    def _save_if_due(self) -> None:
        interval = self._parts.config.trainer.save_interval
        if interval > 0 and self.progress.trained % interval == 0:
            self._save()

    def _save(self) -> None:
        """Write a checkpoint; where the last one is of this place, only how far the run is."""
        is_saved = self._saved is not None and self.progress.holds_as_much_as(self._saved)
        if self._parts.flight is not None:  # groups end at any time
            self._explorer_state, is_saved = self._parts.explorer_state(), False
        write = self._parts.save_progress if is_saved else self._parts.save
        write(self.progress, self._explorer_state)
        self._saved = self.progress.copy()

    def _save_after_failure(self) -> None:
        """Save what was trained since the last checkpoint; the failure is told either way."""
        last = self._saved.trained if self._saved is not None else 0
        if self._parts.trainer is None or self.progress.trained <= last:
            return
        if self._in_hand:
            self._parts.put_back(self._in_hand)
            self._in_hand = []
        try:
            self._save()
        except CheckpointError as error:
            logger.warning("%s", error)

    def _stop_if_asked(self) -> None:
        if self._parts.interrupt.is_requested:
            self._save()
            raise Interrupted
