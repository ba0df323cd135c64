"""Where rollout steps and evaluations run: in a thread beside the loop, or while the loop waits.

    loop: let(last step), evaluate() ----> explore, explore, evaluate, explore, ...
               ^                                     |
               +------------- ended() <--------------+  results, and where the explorer stood then

Where groups begin one by one the explorer runs them itself; here are then its evaluations alone.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.runtime.error_context import boundary

if TYPE_CHECKING:
    from trinity.common.metrics import Metrics
    from trinity.explorer.explorer import ExploreResult
    from trinity.runtime.parts import Parts

logger = logging.getLogger(__name__)

LOOK_S = 1.0  # so often a wait comes back to Python, where a second Ctrl-C is heard
PATIENCE_S = 60.0  # with a rollout step that the trainer waits for, until that is said


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutEnd:
    """A rollout step or an evaluation that ended, or the end of the tasks."""

    step: int
    result: ExploreResult | None = None  # None: it was an evaluation, or there are no more tasks
    evaluation: Metrics | None = None  # None: it was a step
    state: dict[str, Any]  # of the explorer, before anything else began (Any: json)
    began: float  # by time.perf_counter
    seconds: float


def explorer_state(parts: Parts) -> dict[str, Any]:
    """Return where the explorer stands in its tasks and in what it writes, as it is now.

    A copy: a selector may give what it goes on changing, beside a checkpoint too.
    """
    if parts.explorer is None:
        return {}
    state = copy.deepcopy(parts.explorer.state_dict())
    return state if "files" in state else {**state, "files": parts.files.of_explorer.marks()}


class Rollouts:
    """Runs the explorer of a stage; all public methods are for the loop's thread.

    Args:
        parts: of the stage; in turns nothing runs but in :meth:`wait`.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts, self._buffer = parts, parts.rollouts
        self._in_turns = parts.in_turns
        self._ends: deque[RolloutEnd | BaseException] = deque()  # guarded by the buffer's lock
        self._last: float = parts.rollouts.begun  # the youngest step that may begin
        self._evaluates: int | None = None  # after which explore step
        self._is_evaluating = False  # from the question until its end was returned
        self._is_stopped = False
        self._is_out = False  # there are no more tasks
        self._evaluated_step = 0  # of the last evaluation that was asked for
        self._since = time.monotonic()  # when it began what it does, or came to wait
        self._patience_s = PATIENCE_S
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Rollouts:
        """Let the thread begin, if there is one."""
        if not self._in_turns and self._parts.explorer is not None:
            self._thread = threading.Thread(target=self._run, name="trinity-rollouts", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let it begin nothing more; what it is in the middle of ends with the explorer."""
        with self._buffer.changed:
            self._is_stopped = True
            self._buffer.changed.notify_all()

    @property
    def is_evaluating(self) -> bool:
        return self._is_evaluating

    def let(self, last: float) -> None:
        with self._buffer.changed:
            self._last = last
            self._buffer.changed.notify_all()

    def hold(self) -> None:
        """Let no rollout step begin until :meth:`let` is called again."""
        self.let(self._buffer.begun)

    def evaluate(self, step: int) -> None:
        with self._buffer.changed:
            self._evaluates, self._is_evaluating, self._evaluated_step = step, True, step
            self._buffer.changed.notify_all()

    def ended(self) -> list[RolloutEnd]:
        """Return what ended since this was asked last, in its order.

        Raises:
            Exception: what the explorer failed by; what ended before is returned first.
        """
        ends: list[RolloutEnd] = []
        with self._buffer.changed:
            while self._ends:
                end = self._ends[0]
                if isinstance(end, BaseException):
                    if not ends:
                        raise end
                    return ends  # it is raised next time; nothing comes after a failure
                self._ends.popleft()
                ends.append(end)
                self._is_evaluating &= end.evaluation is None
        if self._parts.groups is not None:
            with boundary("a group of rollouts"):
                self._parts.groups.check()
        self._patience_s = PATIENCE_S if ends else self._patience_s
        return ends

    def wait(self, seen: int) -> None:
        """Return when anything ended; in turns: run what may begin.

        Args:
            seen: the buffer's ``num_changes`` when the loop looked last.
        """
        if self._in_turns:
            if not self._may_begin():
                if self._parts.interrupt.is_requested:
                    return  # since the loop looked: it looks again
                raise RuntimeError("the run waits for a rollout that may not begin")
            self._run_next()
            return
        with self._buffer.changed:
            if self._buffer.num_changes == seen:
                self._buffer.changed.wait(LOOK_S)
        self._report_long_wait()

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                self._run_next()
        except BaseException as error:  # noqa: BLE001 -- raised where the ends are asked for
            self._put(error)

    def _run_next(self) -> None:
        """Run an evaluation or a rollout step; without one wait a moment for it."""
        with self._buffer.changed:
            if not self._may_begin():
                self._since = time.monotonic()
                self._buffer.changed.wait(LOOK_S)
                return
            self._since = time.monotonic()
            if self._is_stopped:
                return
            step, self._evaluates = self._evaluates, None
            begun = None if step is not None else self._buffer.begin().number
        if begun is None:
            assert step is not None
            self._put(self._evaluated(step))
        else:
            self._put(self._explored(begun))

    def _may_begin(self) -> bool:
        is_admitted = self._buffer.begun < self._last and not self._is_out
        return self._evaluates is not None or is_admitted

    def _explored(self, step: int) -> RolloutEnd:
        assert self._parts.explorer is not None
        began, result = time.perf_counter(), None
        try:
            with boundary(f"explore step {step}", may_end=True):
                result = self._parts.explorer.explore_step(step)
        except StopIteration:  # refilled steps took the tasks of later ones
            with self._buffer.changed:
                self._buffer.cancel(step)
                self._is_out = True
        return self._end(step, began, result=result)

    def _evaluated(self, step: int) -> RolloutEnd:
        assert self._parts.explorer is not None
        began = time.perf_counter()
        with boundary(f"the evaluation after step {step}"):
            metrics = self._parts.explorer.evaluate(step)
        return self._end(step, began, evaluation=metrics)

    def _end(self, step: int, began: float, **what: Any) -> RolloutEnd:  # Any: what it gave
        seconds = time.perf_counter() - began
        return RolloutEnd(step=step, state=self._state(), began=began, seconds=seconds, **what)

    def _state(self) -> dict[str, Any]:
        """Return where the explorer stands; once the loop is over, files are another start's."""
        if self._is_stopped or self._parts.groups is not None:
            return {}
        return explorer_state(self._parts)

    def _put(self, end: RolloutEnd | BaseException) -> None:
        with self._buffer.changed:
            self._ends.append(end)
            self._buffer.notify()

    def _report_long_wait(self) -> None:
        """Say now and then what is waited for; of groups the explorer says it."""
        is_busy = self._is_evaluating or (self._parts.groups is None and self._buffer.num_running)
        waited_s = time.monotonic() - self._since
        if not is_busy or waited_s < self._patience_s:
            return
        self._patience_s = 3 * waited_s
        what = "the evaluation after step" if self._is_evaluating else "explore step"
        step = self._evaluated_step if self._is_evaluating else self._buffer.begun
        logger.warning("the trainer waits for %s %d, which began %.0f s ago", what, step, waited_s)
