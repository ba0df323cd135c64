"""The explorer's side as a thread: it begins its next step when it may, whatever the trainer does.

driver: let(last step), evaluate() ----> thread: explore, explore, evaluate, explore, ...
            ^                                        |
            +-------------- ended() <----------------+  results, and where the explorer stood then
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.metrics import Metrics
    from trinity.explorer.explorer import ExploreResult

__all__ = ["Ended", "ExplorerSide"]

LOOK_S = 1.0  # so often a wait comes back to Python


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What ended: an explore step, or an evaluation."""

    result: ExploreResult | None  # None: it was an evaluation, or there are no more tasks
    evaluation: Metrics | None  # None: it was a step
    state: dict[str, Any]  # of the explorer, before it began anything else (Any: json)
    began: float  # by time.perf_counter
    seconds: float


class ExplorerSide:
    """Calls the explorer in a thread of its own; all methods are for the driver's.

    Args:
        explore: makes a step.
        evaluate: makes an evaluation.
        state: tells where the explorer stands between two calls.
        begun: the step that was made last.
    """

    def __init__(
        self,
        *,
        explore: Callable[[int], ExploreResult],
        evaluate: Callable[[], Metrics],
        state: Callable[[], dict[str, Any]],
        begun: int,
    ) -> None:
        self._explore, self._evaluate, self._state = explore, evaluate, state
        self._ends: queue.SimpleQueue[Ended | BaseException] = queue.SimpleQueue()
        self._changed = threading.Condition()  # guards the following
        self._begun = self._last = begun
        self._is_stopped = self._is_asked = False
        self._is_left = False  # nobody asks for ends any more
        self._is_evaluating = False  # from the question until its end was returned
        self._since = time.monotonic()  # when it began what it does, or came to wait
        self._thread = threading.Thread(target=self._run, name="trinity-explore", daemon=True)

    def __enter__(self) -> ExplorerSide:
        """Let it begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let it begin nothing more; what it is in the middle of ends with the explorer."""
        with self._changed:
            self._is_stopped = self._is_left = True
            self._changed.notify_all()

    @property
    def begun(self) -> int:
        """Return the last step that began."""
        return self._begun

    @property
    def is_evaluating(self) -> bool:
        """Return whether an evaluation was asked for whose end nobody has heard of."""
        return self._is_evaluating

    @property
    def at_it_s(self) -> float:
        """Return for how long it has done what it does now."""
        return time.monotonic() - self._since

    def let(self, last_step: Callable[[int], int]) -> None:
        """Let all steps begin up to the one that is told; it gets the last that began."""
        with self._changed:
            self._last = last_step(self._begun)
            self._changed.notify_all()

    def evaluate(self) -> None:
        """Let it evaluate before it begins another step."""
        with self._changed:
            self._is_asked = self._is_evaluating = True
            self._changed.notify_all()

    def ended(self, *, timeout_s: float) -> list[Ended]:
        """Return what ended, in its order; empty: nothing did in time.

        Raises:
            Exception: what the explorer failed by; what ended before is returned first.
        """
        ends: list[Ended] = []
        with suppress(queue.Empty):
            end = self._ends.get(timeout=timeout_s) if timeout_s else self._ends.get_nowait()
            while True:
                if isinstance(end, BaseException):
                    if not ends:
                        raise end
                    self._ends.put(end)  # nothing comes after a failure
                    return ends
                ends.append(end)
                self._is_evaluating &= end.evaluation is None
                end = self._ends.get_nowait()
        return ends

    def _run(self) -> None:
        try:
            while (step := self._next()) is not None:
                self._ends.put(self._evaluated() if step == 0 else self._explored(step))
        except BaseException as error:  # noqa: BLE001 -- raised where the ends are asked for
            self._ends.put(error)

    def _next(self) -> int | None:
        """Return the step to make; 0: an evaluation; None: nothing more."""
        with self._changed:
            self._since = time.monotonic()
            while not (self._is_stopped or self._is_asked or self._begun < self._last):
                self._changed.wait(LOOK_S)
            self._since = time.monotonic()
            if self._is_stopped:
                return None
            if self._is_asked:
                self._is_asked = False
                return 0
            self._begun += 1
            return self._begun

    def _explored(self, step: int) -> Ended:
        began = time.perf_counter()
        try:
            result = self._explore(step)
        except StopIteration:  # refilled steps took the tasks of later ones
            with self._changed:
                self._begun, self._is_stopped = step - 1, True
            return self._ended(began)
        return self._ended(began, result=result)

    def _evaluated(self) -> Ended:
        began = time.perf_counter()
        return self._ended(began, evaluation=self._evaluate())

    def _ended(
        self,
        began: float,
        *,
        result: ExploreResult | None = None,
        evaluation: Metrics | None = None,
    ) -> Ended:
        seconds = time.perf_counter() - began
        return Ended(
            result=result,
            evaluation=evaluation,
            state={} if self._is_left else self._state(),  # files of now are another attempt's
            began=began,
            seconds=seconds,
        )
