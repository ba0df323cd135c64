"""Decide when which order runs, and on which thread.

    orders --first in, first out--> [ slot slot slot ] --> results
                                       ^ a failed attempt starts again at once
                                       ^ one that is late leaves its slot behind

An engine waits with a batch until every run that began has asked for something or ended. So a run
begins, for the engine, before the first run of its wave starts, and a freed place is given to the
next run before the engine hears that the last one ended: what stands in a batch is then a function
of the orders, not of how fast threads are.
"""

from __future__ import annotations

import logging
import queue
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.common.outcome import RunFailure
from trinity.errors import RunFailedError
from trinity.explorer.failure import timed_out
from trinity.explorer.order import RunResult
from trinity.explorer.runner import Attempt
from trinity.explorer.threads import EventLoopThread, Slot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.ports import RolloutEngine
    from trinity.explorer.order import RunOrder
    from trinity.explorer.runner import Runner

__all__ = ["Limits", "Scheduler"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much is run at once, how long, and how often."""

    num_slots: int
    timeout_s: float  # of one attempt
    max_attempts: int
    can_fail: bool = True  # False: the first failed run stops everything


@dataclass(eq=False)
class _Active:
    """An order that runs: STARTED -> ENDED, or STARTED -> LATE -> STARTED again | ENDED."""

    place: int
    attempt: Attempt
    slot: Slot
    began: float
    deadline: float


class Scheduler:
    """Runs orders on a fixed number of slots.

    Args:
        runners: one for each engine; a task's runs go to one engine.
        engines: the engines, in the same order.
        loop: the event loop of workflows that await; looked after when a run is late.
        limits: slots, time and attempts.
    """

    def __init__(
        self,
        runners: Sequence[Runner],
        *,
        engines: Sequence[RolloutEngine],
        loop: EventLoopThread,
        limits: Limits,
    ) -> None:
        self._runners = runners
        self._engines = engines
        self._loop = loop
        self._limits = limits
        self._ended: queue.SimpleQueue[tuple[_Active, Attempt, object]] = queue.SimpleQueue()
        self._idle: list[Slot] = []
        self._abandoned: list[Slot] = []
        self._num_slots_made = 0
        self._active: set[_Active] = set()
        self._waiting: deque[tuple[int, RunOrder]] = deque()
        self._results: dict[int, RunResult] = {}

    @property
    def num_hung(self) -> int:
        """Return how many threads were left behind and still run."""
        self._abandoned = [slot for slot in self._abandoned if slot.is_alive]
        return len(self._abandoned)

    def run(self, orders: Sequence[RunOrder]) -> list[RunResult]:
        """Return how each order ended, in the order of the orders.

        Raises:
            RunFailedError: a run failed and ``limits.can_fail`` is off.
            TrinityError: an error that concerns all runs.
        """
        self._waiting = deque(enumerate(orders))
        self._results = {}
        try:
            self._begin_first_wave()
            while self._active:
                self._wait_for_one()
        finally:
            self._stop_what_runs()
        return [self._results[place] for place in range(len(orders))]

    def close(self) -> None:
        """End the idle threads; safe to call twice."""
        while self._idle:
            self._idle.pop().close()

    def _begin_first_wave(self) -> None:
        size = min(len(self._waiting), self._limits.num_slots)
        wave = [self._waiting.popleft() for _ in range(size)]
        for _, order in wave:
            self._engine(order).run_began()
        for place, order in wave:
            self._start(place, Attempt(order))

    def _wait_for_one(self) -> None:
        deadline = min(active.deadline for active in self._active)
        try:
            active, attempt, ended = self._ended.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            self._give_up_late_ones()
            return
        if attempt.is_abandoned:  # too late; its slot was told to end
            return
        self._active.discard(active)
        self._idle.append(active.slot)
        if isinstance(ended, BaseException):
            self._engine(attempt.order).run_ended()
            raise ended
        self._handle(active, ended)

    def _give_up_late_ones(self) -> None:
        now = time.monotonic()
        for active in sorted(self._active, key=lambda active: active.place):
            if active.deadline > now:
                continue
            attempt = active.attempt
            failure = timed_out(
                attempt.order,
                attempt=attempt.number,
                limit_s=self._limits.timeout_s,
                stack=active.slot.stack,
            )
            self._abandon(active)
            self._handle(active, failure)

    def _abandon(self, active: _Active) -> None:
        self._active.discard(active)
        active.attempt.is_abandoned = True
        order = active.attempt.order
        active.slot.leave(f"{order.workflow.name}-{order.key.task}-{order.key.run}")
        self._abandoned.append(active.slot)
        if active.attempt.awaited is not None:
            active.attempt.awaited.cancel()
            self._loop.replace_if_stuck()

    def _handle(self, active: _Active, ended: object) -> None:
        attempt, order = active.attempt, active.attempt.order
        if isinstance(ended, RunFailure):
            logger.info("%s", ended.line())
            if attempt.number < self._limits.max_attempts and self._limits.can_fail:
                self._start(active.place, Attempt(order, attempt.number + 1), began=active.began)
                return
        self._note(active, ended)
        if self._waiting:
            place, following = self._waiting.popleft()
            self._engine(following).run_began()
            self._engine(order).run_ended()
            self._start(place, Attempt(following))
        else:
            self._engine(order).run_ended()

    def _note(self, active: _Active, ended: object) -> None:
        failure = ended if isinstance(ended, RunFailure) else None
        self._results[active.place] = RunResult(
            order=active.attempt.order,
            experiences=() if failure else tuple(ended),  # type: ignore[arg-type] # a list
            failure=failure,
            num_retries=active.attempt.number - 1,
            duration_s=time.monotonic() - active.began,
        )
        if failure and not self._limits.can_fail:
            self._engine(active.attempt.order).run_ended()
            raise RunFailedError(
                f"a run failed, and explorer.on_failed_run is fail. {failure.line()}"
            )

    def _start(self, place: int, attempt: Attempt, *, began: float | None = None) -> None:
        now = time.monotonic()
        active = _Active(
            place=place,
            attempt=attempt,
            slot=self._idle.pop() if self._idle else self._new_slot(),
            began=now if began is None else began,
            deadline=now + self._limits.timeout_s,
        )
        self._active.add(active)
        runner = self._runners[attempt.order.key.task % len(self._runners)]

        def work() -> None:
            try:
                ended: object = runner.run(attempt)
            except BaseException as error:  # noqa: BLE001 - goes on in the thread that waits
                ended = error
            self._ended.put((active, attempt, ended))

        active.slot.start(work)

    def _new_slot(self) -> Slot:
        self._num_slots_made += 1
        return Slot(f"trinity-run-{self._num_slots_made}")

    def _stop_what_runs(self) -> None:
        """Leave behind what still runs, after an error or Ctrl-C."""
        for active in list(self._active):
            self._abandon(active)
            self._engine(active.attempt.order).run_ended()
        self._waiting.clear()

    def _engine(self, order: RunOrder) -> RolloutEngine:
        return self._engines[order.key.task % len(self._engines)]
