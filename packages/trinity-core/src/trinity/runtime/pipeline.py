"""The story of a run.

              explore(step)          train what is due             sync
  taskset --> explorer --> buffer --> strategy --> trainer --> weights --> engines
                 ^                                                            |
                 +------------------------------------------------------------+

With style ``fixed``, interval i and offset o, the explorer gets new weights after its steps o+i,
o+2i, ...; before that the trainer has trained all that was explored up to i steps after the last
sync, and nothing of the last o steps. The other styles train whole batches: ``runtime/pace.py``.
Over Ray, the whole batches that the next sync waits for are trained while the next steps are
explored; the numbers are the same: ``runtime/sides.py``.

With style ``fully_async`` the explorer never stands still: it lets a group begin whenever there is
room for one, and an explore step ends as soon as a batch of whole groups can be taken. The others
go on while that is trained; the sync frees the places of what was trained: ``explorer/flight.py``.

With ``explorer_driven`` and ``trainer_driven`` over Ray the loop in :meth:`Pipeline._work` is
another: ``runtime/pipeline_ahead.py``, where the explorer begins its steps by itself.

  in turns        explore 1 | train 1 | sync | explore 2 | train 2 | sync | explore 3 ...
  at once         explore 2          | sync | explore 3          | sync | explore 4 ...
                  train 1                     train 2                     train 3
  by themselves   explore 2 | explore 3 | explore 4 ...
                  train 1      | train 2 | sync | train 3 ...

What a train step, a sync and a checkpoint do and leave behind: ``runtime/phases.py``.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from trinity.errors import CheckpointError, RayLostError, RoomLostError
from trinity.runtime.phases import Interrupted, Phases
from trinity.runtime.steps import evaluated, explored

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Interrupted", "Pipeline"]


class Pipeline(Phases):
    """Runs the parts of one stage."""

    def run(self) -> None:
        """Go on from the progress there is until every step is done.

        Raises:
            Interrupted: it was asked to stop; a checkpoint was written.
            TrinityError: a part failed; what was trained is saved.
        """
        parts = self._parts
        parts.display.began(
            total_steps=parts.total_steps,
            progress=self.progress,
            stage=parts.info.stage,
            has_explorer=parts.explorer is not None,
            has_trainer=parts.trainer is not None,
        )
        self._note_place()
        try:
            self._work()
            self._train_the_rest()
            self._evaluate()
        except (CheckpointError, RoomLostError, RayLostError):
            raise  # it would fail again; half of what is lost with a room is no state to save
        except Exception:  # whatever it is, what was trained is saved before it goes on
            self._save_after_failure()
            raise
        self._save()

    def _work(self) -> None:
        """Explore all steps, and train what syncs ask for."""
        self._finish_what_is_due()
        self._free_places()
        self._evaluate_if_due()
        while self._may_explore():
            self._explore()
            self._finish_what_is_due()
            self._evaluate_if_due()

    def _may_explore(self) -> bool:
        return (
            self._parts.explorer is not None
            and self.progress.explored < self._parts.num_explore_steps
            and not self._is_enough(self._pace.num_counted(self.progress))
        )

    def _is_enough(self, trained: int) -> bool:
        limit = self._parts.num_train_steps
        return limit is not None and trained >= limit

    def _is_trained_enough(self) -> bool:
        return self._is_enough(self.progress.trained)

    def _explore(self) -> None:
        parts, progress = self._parts, self.progress
        assert parts.explorer is not None
        self._note_place()
        began = time.perf_counter()
        self._step_began = began if self._step_began is None else self._step_began
        explore = partial(explored, parts.explorer, step=progress.explored + 1)
        try:
            result, beside_s = parts.sides.explore(explore, beside=self._train_ahead)
        except StopIteration:  # refilled steps took the tasks of later ones, or a service is to end
            self._stop_if_asked()
            parts.num_explore_steps = progress.explored
            return
        beside = {"time/trained_beside_s": beside_s} if parts.sides.overlap else {}
        progress.explored += 1
        progress.written.append(result.num_experiences)
        self._note_place()
        self._tell_explored(result, {"time/rollout_s": time.perf_counter() - began} | beside)
        if parts.trainer is None:
            self._save()  # a place in the tasks and in what is written, nothing large
        self._stop_if_asked()

    def _finish_what_is_due(self) -> None:
        """Give the trainer its turn, if it is due, and the engines what it leaves."""
        if not self._parts.trainer:
            self.progress.written.clear()
            return
        if self._pace.begin_turn(self.progress):
            self._train_what_is_due()
            if self._pace.syncs_now(self.progress, is_turn_over=True):
                self._sync()
            self.progress.synced = self.progress.explored

    def _train_what_is_due(self, *, is_last: bool = False) -> None:
        """Train as long as the pace wants, or in the last turn down to the last short batch."""
        source, pace, progress = self._parts.source, self._pace, self.progress
        assert source is not None
        source.num_due, pulled = progress.num_due, progress.pulled
        while not self._is_trained_enough():
            if source.available() < (1 if is_last else pace.num_needed(progress)):
                break
            try:
                self._train_step()
            except StopIteration:  # what was there is too old for the strategy
                break
            if pace.syncs_now(progress, is_turn_over=False):
                self._sync()
                self._step_began = time.perf_counter()  # what is trained now is of it too
        progress.num_due = source.num_due if source.available() else 0
        if pulled < progress.pulled == progress.trained:
            self._step_began = None

    def _train_ahead(self, is_explored: Callable[[], bool]) -> None:
        """Train whole batches of what the next sync waits for, while a step is explored."""
        parts, source = self._parts, self._parts.source
        while source is not None and not (
            is_explored() or parts.interrupt.is_requested or self._is_trained_enough()
        ):
            source.num_due = self._num_ready()
            if source.available() < parts.batch_size:
                return
            try:
                self._train_step(is_ahead=True)
            except StopIteration:  # the strategy has nothing: the turn asks it again
                return

    def _train_the_rest(self) -> None:
        """Train what no sync point asked for: the offset's steps, or a whole file."""
        if self._parts.trainer is None or self._parts.strategy is None:
            return
        if self._parts.explorer is None:
            self._train_from_storage()
            return
        self.progress.make_due(keep=0)
        if self.progress.num_due:
            self._train_what_is_due(is_last=True)
        if self.progress.trained > self.progress.pulled:
            self._sync()

    def _train_from_storage(self) -> None:
        while not self._is_trained_enough():
            try:
                self._train_step()
            except StopIteration:
                self._stop_if_asked()
                return

    def _evaluate_if_due(self) -> None:
        """Evaluate at the start and every ``eval_interval`` steps, but for the end of the run."""
        if self._is_evaluation_step(self.progress.explored) and self._may_explore():
            self._evaluate()

    def _is_evaluation_step(self, step: int) -> bool:
        explorer = self._parts.config.explorer
        if step == 0:
            return explorer.eval_on_startup
        return explorer.eval_interval > 0 and step % explorer.eval_interval == 0

    @property
    def _has_to_evaluate(self) -> bool:
        """Return whether there are tasks for it that the engines' model was not asked yet."""
        parts = self._parts
        has_tasks = parts.explorer is not None and parts.has_evaluation
        return has_tasks and not self.progress.is_evaluated

    def _evaluate(self) -> None:
        if self._has_to_evaluate:
            assert self._parts.explorer is not None
            began = time.perf_counter()
            metrics = evaluated(self._parts.explorer, step=self.progress.explored)
            self._note_evaluation(metrics, time.perf_counter() - began)
            self._stop_if_asked()
