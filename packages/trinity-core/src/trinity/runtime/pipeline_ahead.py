"""The story of a run whose explorer begins its steps by itself, as far ahead as it may.

explorer's thread   explore 1 | explore 2 | explore 3     evaluate     | explore 4 | ...
this thread                   | train 1 | sync | train 2  | train 3    | sync
                                          ^ what ended is noted here, and all files are written

Between two optimizer steps this thread looks what ended, decides whether weights change, and says
how far the explorer may go: ``runtime/lead.py``. Weights wait for an evaluation; training does not.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from trinity.common.config.check_names import is_own
from trinity.runtime.ages import Ages
from trinity.runtime.explorer_side import ExplorerSide
from trinity.runtime.lead import Standing
from trinity.runtime.pipeline import Pipeline
from trinity.runtime.steps import evaluated, explored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.metrics import Metrics
    from trinity.explorer.explorer import ExploreResult
    from trinity.runtime.explorer_side import Ended
    from trinity.runtime.lead import Lead
    from trinity.runtime.parts import Parts
    from trinity.runtime.record.progress import Progress

__all__ = ["PipelineAhead", "pipeline_of"]

logger = logging.getLogger(__name__)

LOOK_S = 1.0  # so often a wait comes back to Python, where a second Ctrl-C is heard
PATIENCE_S = 60.0  # with an explore step that the trainer waits for, until that is said


class PipelineAhead(Pipeline):
    """Runs the parts of one stage, whose explorer has a lead.

    Args:
        parts: of the stage.
        lead: of the explorer.
        is_whole: whether the strategy gives a batch out as soon as it is there.
    """

    def __init__(self, parts: Parts, lead: Lead, *, is_whole: bool = True) -> None:
        super().__init__(parts)
        self._lead = lead
        self._ages = Ages(parts.config, batch_size=parts.batch_size, lead=lead, is_whole=is_whole)
        self._patience_s = PATIENCE_S
        self._has_nothing = False  # the strategy said so of what is there
        self._trained_at: deque[tuple[float, float]] = deque()  # beside a step that has not ended

    def resume(self, progress: Progress, *, flight: Mapping[str, Any] | None = None) -> None:
        """Stand where a checkpoint stands that was loaded."""
        super().resume(progress, flight=flight)
        if progress.explored:
            self._ages.begin_with([progress.num_due, *progress.written])

    def _work(self) -> None:
        self.progress.make_undue()
        self._step_began = time.perf_counter()
        side = ExplorerSide(
            explore=self._explore_by_itself,
            evaluate=self._evaluate_by_itself,
            state=self._parts.explorer_state,
            begun=self.progress.explored,
        )
        with side:
            self._ask_for_evaluation(side)
            while self._goes_on(side):
                can_train = self._can_train()
                self._let_begin(side, can_train=can_train)
                if can_train:
                    self._train_a_batch()
                    self._take_ended(side, timeout_s=0.0)
                else:
                    self._wait(side)
        self._stop_if_asked()

    def _explore_by_itself(self, step: int) -> ExploreResult:
        assert self._parts.explorer is not None
        return explored(self._parts.explorer, step=step)

    def _evaluate_by_itself(self) -> Metrics:
        assert self._parts.explorer is not None
        return evaluated(self._parts.explorer, step=self.progress.explored)

    def _goes_on(self, side: ExplorerSide) -> bool:
        is_busy = side.begun > self.progress.explored or side.is_evaluating
        return is_busy or (self._may_explore() and not self._parts.interrupt.is_requested)

    def _let_begin(self, side: ExplorerSide, *, can_train: bool) -> None:
        """Give the engines weights, if it is time, and say how far the explorer may go.

        It begins nothing between the question and the weights: they change where it stands then.
        """
        standing = partial(Standing.of, self.progress, can_train=can_train)
        side.let(lambda begun: begun)
        if (
            self._may_explore()
            and not side.is_evaluating
            and self._lead.syncs_now(standing(begun=side.begun))
        ):
            self._sync()
        most = min(self._parts.num_explore_steps, self._next_evaluation())

        def last(begun: int) -> int:
            if side.is_evaluating or self._parts.interrupt.is_requested:
                return begun
            lead = self._lead.last_step(standing(begun=begun))
            return int(min(most, lead, self._last_wanted(begun, can_train=can_train)))

        side.let(last)

    def _next_evaluation(self) -> float:
        """Return the step after which the explorer has to evaluate next; infinity: none."""
        explored, interval = self.progress.explored, self._parts.config.explorer.eval_interval
        if not self._parts.has_evaluation or interval <= 0:
            return math.inf
        return (explored // interval + 1) * interval

    def _last_wanted(self, begun: int, *, can_train: bool) -> float:
        """Return the step with which all is on its way that the optimizer steps to come read."""
        parts, limit = self._parts, self._parts.num_train_steps
        if limit is None:
            return math.inf
        a_step = parts.config.buffer.batch_size * (parts.config.algorithm.repeat_times or 1)
        num_there = self.progress.num_waiting + (begun - self.progress.explored) * a_step
        num_missing = (limit - self.progress.trained) * parts.batch_size - num_there
        is_stuck = begun == self.progress.explored and not can_train
        return begun + max(int(is_stuck), -(-num_missing // a_step))

    def _can_train(self) -> bool:
        """Return whether a whole batch is there."""
        source = self._parts.source
        if source is None or self._has_nothing or self._is_trained_enough():
            return False
        if self._num_ready() < self._parts.batch_size:
            return False
        source.num_due = self._num_ready()
        return source.available() >= self._parts.batch_size

    def _num_ready(self) -> int:
        """Return all that was written and not trained."""
        return self.progress.num_waiting

    def _train_a_batch(self) -> None:
        began = time.perf_counter()
        try:
            self._train_step(is_ahead=True)
        except StopIteration:  # until there is more
            self._has_nothing = True
        self._trained_at.append((began, time.perf_counter()))
        self.progress.forget_trained()

    def _wait(self, side: ExplorerSide) -> None:
        """Wait for the explorer a moment; say it now and then."""
        self._take_ended(side, timeout_s=LOOK_S)
        explored = self.progress.explored
        if side.at_it_s > self._patience_s and (side.is_evaluating or side.begun > explored):
            self._patience_s = 3 * side.at_it_s
            logger.warning(
                "the trainer waits for %s, which began %.0f s ago",
                f"the evaluation after step {explored}" if side.is_evaluating
                else f"explore step {explored + 1}",
                side.at_it_s,
            )  # fmt: skip

    def _take_ended(self, side: ExplorerSide, *, timeout_s: float) -> None:
        for end in side.ended(timeout_s=timeout_s):
            self._explorer_state = end.state
            if end.evaluation is not None:
                self._patience_s = PATIENCE_S
                self._note_evaluation(end.evaluation, end.seconds)
            else:
                self._note_explored(end)
                self._ask_for_evaluation(side)

    def _note_explored(self, end: Ended) -> None:
        progress = self.progress
        if end.result is None:
            self._parts.num_explore_steps = progress.explored
            return
        progress.explored += 1
        progress.written.append(end.result.num_experiences)
        self._ages.explored(end.result.num_experiences)
        self._patience_s, self._has_nothing = PATIENCE_S, False
        beside_s = self._trained_beside(end.began, end.began + end.seconds)
        times = {"time/rollout_s": end.seconds, "time/trained_beside_s": beside_s}
        self._tell_explored(end.result, times)

    def _trained_beside(self, began: float, ended: float) -> float:
        """Return the seconds that were trained beside an explore step; steps come in order."""
        spans = self._trained_at
        beside_s = sum(max(0.0, min(end, ended) - max(begin, began)) for begin, end in spans)
        while spans and spans[0][1] <= ended:
            spans.popleft()
        return beside_s

    def _sync(self) -> None:
        super()._sync()
        self._ages.synced()
        self._step_began = time.perf_counter()  # the explorer is at its next step, or begins it

    def _ask_for_evaluation(self, side: ExplorerSide) -> None:
        """Let the newest weights be evaluated, if it is time; a run that is to end does it later.

        The explorer stands still: it begins no step after this one before it was asked.
        """
        progress, parts = self.progress, self._parts
        is_due = self._is_evaluation_step(progress.explored) and self._may_explore()
        if not (is_due and parts.has_evaluation) or parts.interrupt.is_requested:
            return
        if progress.evaluated == progress.explored:
            return  # before this start: engines get newer weights with it, which is no new step
        if progress.trained > progress.pulled:
            asked = progress.synced
            self._sync()
            progress.synced = asked  # an explorer that decides has not asked before its next step
        side.evaluate()


def pipeline_of(parts: Parts) -> Pipeline:
    """Return what runs the parts."""
    if parts.lead is None:
        return Pipeline(parts)
    strategy = parts.manager.find("sample_strategy", parts.config.algorithm.sample_strategy)
    return PipelineAhead(parts, parts.lead, is_whole=is_own(strategy))
