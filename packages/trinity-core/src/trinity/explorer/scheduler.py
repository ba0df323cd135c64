"""Decide when which request runs, and on which thread.

    requests --one queue an engine--> [ slot slot slot ] --> results
                                      ^ a failed attempt starts again at once, unless it is final
                                      ^ one that is late leaves its slot behind

An engine waits with a batch until every run that began has asked for something or ended. So a run
begins, for the engine, before the first run of its wave starts, and a freed place is given to the
next run before the engine hears that the last one ended: what stands in a batch is then a function
of the requests, not of how fast threads are.

A thread whose run has ended takes the next request by itself; the thread that called ``run`` or
``ended`` only waits for an end, for an error, and for what is late.

Either ``run`` is called, for all requests of a step, or ``begin`` at any time and ``ended``: then
slots serve the oldest requests first.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
import traceback
from concurrent.futures import CancelledError
from contextlib import ExitStack
from typing import TYPE_CHECKING

from trinity.common.outcome import RunFailure
from trinity.errors import RunFailedError
from trinity.explorer.failure import TracebackLog, cut_short, stack_text, timed_out
from trinity.explorer.requests import (
    RequestBatch,
    RequestQueues,
    RolloutLimits,
    RolloutResult,
    RunningRollout,
    report_of,
)
from trinity.explorer.runner import RolloutAttempt, Runner
from trinity.extend.watch import stack_of_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from trinity.common.ports import EndpointOpener, RolloutEngine
    from trinity.explorer.event_loop import EventLoopThread
    from trinity.explorer.requests import RequestGroup, RolloutRequest


SWITCH_S, MAX_SWITCH_S = 1e-4, 1.0  # of Python's lock: for each rollout, and at most
LOOK_S = 1.0  # Python sees a Ctrl-C that came just as the thread fell asleep when it wakes


class Scheduler:
    """Runs requests on a fixed number of slots an engine: by one :meth:`run` or any :meth:`begin`.

    Args:
        runners: one for each engine; a task's runs go to one engine. Closed with this.
        engines: the engines, in the same order.
        loop: the event loop of workflows that await; looked after when a run is late.
        limits: slots, time and attempts.
        endpoints: opens those of the runs; closed with this.
    """

    def __init__(
        self,
        runners: Sequence[Runner],
        *,
        engines: Sequence[RolloutEngine],
        loop: EventLoopThread,
        limits: RolloutLimits,
        endpoints: EndpointOpener | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._runners = runners
        self._engines = engines
        self._loop = loop
        self._limits = limits
        self._tracebacks = TracebackLog()
        self._changed = threading.Condition()  # guards all below
        self._idle: list[Slot] = []
        self._abandoned: list[Slot] = []
        self._num_slots_made = 0
        self._running: dict[RunningRollout, None] = {}  # whose time is up first stands first
        self._queues = RequestQueues(len(engines), limits)
        self._done: list[tuple[Hashable, list[RolloutResult]]] = []  # that nobody asked for yet
        self._error: BaseException | None = None  # ends the run
        # A thread that waits for Python's lock wakes up once an interval to ask for it: with
        # thousands of them at 5 ms, waking up would be all that the processor does.
        interval_s = min(MAX_SWITCH_S, limits.num_slots * len(engines) * SWITCH_S)
        sys.setswitchinterval(max(sys.getswitchinterval(), interval_s))

    @property
    def num_hung(self) -> int:
        self._abandoned = [slot for slot in self._abandoned if slot.is_alive]
        return len(self._abandoned)

    @property
    def busy_s(self) -> float:
        return sum(engine.busy_s for engine in self._engines)

    def run(self, requests: Sequence[RolloutRequest]) -> list[RolloutResult]:
        """Return how each request ended, in their order; it raises as :meth:`ended`."""
        with self._changed:
            self._error, batch = None, RequestBatch(None, len(requests))
            self._queues.add(batch, requests)
            try:
                self._fill_slots()
                self._wait_for_all()
            finally:
                self._stop_what_runs()
                if self._tracebacks.has_notes:
                    self._tracebacks.end_step()
            return batch.reports()

    def begin(self, name: Hashable, requests: Sequence[RolloutRequest]) -> None:
        """Run these once there are slots; :meth:`ended` calls them by their name."""
        self.begin_all([(name, requests)])

    def begin_all(self, batches: Sequence[tuple[Hashable, Sequence[RolloutRequest]]]) -> None:
        """Run all of these, each with its name; those that get slots now begin as one wave."""
        with self._changed:
            for name, requests in batches:
                self._queues.add(RequestBatch(name, len(requests)), requests)
            self._fill_slots()
            self._changed.notify_all()  # whoever waits may wait for a later deadline

    def ended(
        self, timeout_s: float, *, for_all: bool = False
    ) -> list[tuple[Hashable, list[RolloutResult]]]:
        """Return the names of requests that all ended, and how; none where none did in time.

        Args:
            timeout_s: how long to wait for a first one, in seconds.
            for_all: wait as long for all that began.

        Raises:
            RunFailedError: a run failed and ``limits.can_fail`` is off.
            CancelledError: :meth:`stop` was called.
            TrinityError: an error that concerns all runs.
        """
        limit = time.monotonic() + timeout_s
        with self._changed:
            while self._error is None and (not self._done or (for_all and self._running)):
                rest = limit - time.monotonic()
                if rest <= 0:
                    break
                self._wait_or_give_up(rest)
            if self._error is not None:
                self._stop_what_runs()
                raise self._error
            done, self._done = self._done, []
            if done and not (for_all and self._running):
                self._tracebacks.end_step()
            return done

    def cut(self, name: Hashable) -> None:
        """Leave behind the runs of this name that have not ended; :meth:`ended` tells them."""
        with self._changed:
            for group in self._queues.withdraw(name):
                batch = self._queues.batch_of(group)
                self._queues.ended(group)
                for place, request in group.requests:
                    report = RolloutResult(request=request, failure=cut_short(request))
                    self._note_report(batch, place, report)
            for running in [
                a for a in self._running if self._queues.batch_of(a.group).name == name
            ]:
                self._leave(running, cut_short(running.attempt.request))

    def where(self, name: Hashable) -> str:
        with self._changed:
            return self._queues.where(name)

    def moved(self) -> list[Hashable]:
        """Return nothing: what began stays with its engine."""
        return []

    def stop(self, error: BaseException | None = None) -> None:
        """Let the thread that waits in :meth:`run` or :meth:`ended` leave the runs behind.

        Args:
            error: that it raises; None: a ``CancelledError``.
        """
        with self._changed:
            self._end_with(error or CancelledError())

    def reset(self) -> None:
        """Leave behind all that runs and forget what ended: nobody asks for it any more."""
        with self._changed:
            self._stop_what_runs()
            self._error, self._done = None, []

    def close(self) -> None:
        """End the idle threads, and what the runners hold; safe to call twice."""
        with ExitStack() as stack:  # all of them, whichever fails
            if self._endpoints is not None:
                stack.callback(self._endpoints.close)
            for runner in self._runners:
                stack.callback(runner.close)
            ended, self._idle = self._idle, []
            for slot in ended:
                slot.close()
            for slot in ended:  # a thread that lets its last run go as the process ends aborts it
                slot.join(LOOK_S)

    def _fill_slots(self) -> None:
        wave: list[RequestGroup] = []
        for number, waiting in enumerate(self._queues.queues):
            num_free = self._limits.num_slots - self._queues.num_running(number)
            wave += [waiting.popleft() for _ in range(min(len(waiting), num_free))]
        for group in wave:  # all of them, for the engine, before the first one asks it
            self._begin(group)
        for group in wave:
            for running in self._running_rollouts(group):
                self._start(running)

    def _wait_for_all(self) -> None:
        while self._running and self._error is None:
            self._wait_or_give_up(LOOK_S)
        if self._error is not None:
            raise self._error

    def _wait_or_give_up(self, at_most_s: float) -> None:
        now = time.monotonic()
        first = next((running.deadline for running in self._running), now + LOOK_S)
        if not self._changed.wait(min(max(0.0, first - now), at_most_s, LOOK_S)):
            self._give_up_late_ones()

    def _give_up_late_ones(self) -> None:
        now = time.monotonic()
        for running in sorted(self._running, key=lambda running: running.place):
            if running.deadline > now:
                continue
            attempt, stack = running.attempt, running.slot.stack
            attempt.traceback = stack_text(stack)
            failure = timed_out(
                attempt.request, attempt=attempt.number, limit_s=self._limits.timeout_s, stack=stack
            )
            self._leave(running, failure)

    def _leave(self, running: RunningRollout, failure: RunFailure) -> None:
        self._abandon(running)
        following = self._following(running, failure, slot=self._free_slot())
        if following is not None:
            self._start(following)

    def _abandon(self, running: RunningRollout) -> None:
        self._running.pop(running, None)
        running.attempt.abandon()
        request = running.attempt.request
        running.slot.leave(f"{request.workflow.name}-{request.key.task}-{request.key.run}")
        self._abandoned.append(running.slot)
        if running.attempt.awaited is not None:
            self._loop.replace_if_stuck()

    def _start(self, running: RunningRollout) -> None:
        def work() -> None:
            current: RunningRollout | None = running
            while current is not None:
                try:
                    ended: object = self._runner(current.attempt.request).run(current.attempt)
                except BaseException as error:  # noqa: BLE001 - goes on in the thread that waits
                    ended = error
                current = self._ended(current, ended)

        running.slot.start(work)

    def _ended(self, running: RunningRollout, ended: object) -> RunningRollout | None:
        """Note the end of a run; return what its thread does next."""
        with self._changed:
            if running.attempt.is_abandoned:  # too late; its slot was told to end
                return None
            self._running.pop(running, None)
            return self._following(running, ended, slot=running.slot)

    def _following(
        self, running: RunningRollout, ended: object, *, slot: Slot
    ) -> RunningRollout | None:
        """Return what the slot does after a run: it again, the next of its queue, or nothing."""
        attempt, request = running.attempt, running.attempt.request
        if isinstance(ended, RunFailure):
            self._tracebacks.note(ended, attempt.traceback)
            is_last = attempt.number >= self._limits.max_attempts or ended.is_final
            if not is_last and self._limits.can_fail:
                again = RolloutAttempt(request, (*attempt.earlier, ended))
                return self._running_rollout(
                    running.place, again, group=running.group, slot=slot, began=running.began
                )
        self._note(running, ended)
        running.group.num_open -= 1
        if not running.group.num_open:
            self._queues.ended(running.group)
        waiting, following = self._queues.queues[self._queues.of(request)], None
        if waiting and not running.group.num_open and self._error is None:
            self._begin(waiting[0])
            following, *others = self._running_rollouts(waiting.popleft(), slot=slot)
            for other in others:
                self._start(other)
        self._engine(request).run_ended(request.key)
        if following is None:
            self._idle.append(slot)
            if not self._running:
                self._changed.notify_all()
        return following

    def _note(self, running: RunningRollout, ended: object) -> None:
        if isinstance(ended, BaseException):
            self._end_with(ended)
            return
        report = report_of(running, ended)
        failure = report.failure
        if failure and not (failure.is_cut or self._limits.can_fail):
            line = f"a rollout failed, and explorer.on_failed_run is fail. {failure.line()}"
            self._end_with(RunFailedError(line))
        self._note_report(self._queues.batch_of(running.group), running.place, report)

    def _note_report(self, batch: RequestBatch, place: int, report: RolloutResult) -> None:
        if batch.note(place, report):
            self._done.append((batch.name, batch.reports()))
            self._changed.notify_all()

    def _end_with(self, error: BaseException) -> None:
        self._error = self._error or error
        self._changed.notify_all()

    def _stop_what_runs(self) -> None:
        """Leave behind what still runs, after an error or Ctrl-C."""
        for running in list(self._running):
            self._abandon(running)
            ended = running.attempt.request
            self._engine(ended).run_ended(ended.key)
        self._queues.clear()

    def _begin(self, group: RequestGroup) -> None:
        for _, request in group.requests:
            self._engine(request).run_began(request.key)

    def _running_rollouts(
        self, group: RequestGroup, *, slot: Slot | None = None
    ) -> list[RunningRollout]:
        """Return the runs of a group, the first on the slot, if one is given."""
        slots = [slot or self._free_slot(), *(self._free_slot() for _ in group.requests[1:])]
        return [
            self._running_rollout(place, RolloutAttempt(request), group=group, slot=taken)
            for (place, request), taken in zip(group.requests, slots, strict=True)
        ]

    def _running_rollout(
        self,
        place: int,
        attempt: RolloutAttempt,
        *,
        group: RequestGroup,
        slot: Slot,
        began: float | None = None,
    ) -> RunningRollout:
        now = time.monotonic()
        running = RunningRollout(
            place=place,
            attempt=attempt,
            group=group,
            slot=slot,
            began=now if began is None else began,
            deadline=now + self._limits.timeout_s,
        )
        self._running[running] = None
        return running

    def _free_slot(self) -> Slot:
        if self._idle:
            return self._idle.pop()
        self._num_slots_made += 1
        return Slot(f"trinity-run-{self._num_slots_made}")

    def _engine(self, request: RolloutRequest) -> RolloutEngine:
        return self._engines[request.key.task % len(self._engines)]

    def _runner(self, request: RolloutRequest) -> Runner:
        return self._runners[request.key.task % len(self._runners)]


class Slot:
    """A thread that does one piece of work after the other: IDLE -> BUSY -> IDLE | ABANDONED.

    A run that hangs cannot be stopped from outside. Its thread is a daemon, so that the process can
    end, and another takes its place.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> None:
        """Let the thread do the work, which must not raise."""
        self._inbox.put(work)

    @property
    def stack(self) -> traceback.StackSummary:
        """Return where the thread is now, the outermost frame first."""
        frames = stack_of_thread(self._thread)
        return traceback.StackSummary.extract((one, one.f_lineno) for one in frames)

    def leave(self, why: str) -> None:
        """Give the thread up: it is named after what it hangs in, and ends if that ever does."""
        self._thread.name = f"trinity-hung-{why}"
        self.close()

    def close(self) -> None:
        """End the thread once its work is done, if it ever is."""
        self._inbox.put(None)

    def join(self, limit_s: float) -> None:
        self._thread.join(limit_s)

    def _work(self) -> None:
        while (work := self._inbox.get()) is not None:
            work()
