r"""Send rollout requests to the workers, one for each engine, and collect how they end.

 run(requests of a step), begin(group)
           |
           v
        QUEUED ----to a worker----> RUNNING ----its runs ended----> ENDED ---> run, ended()
           ^                         |   \                           ^
           +----its worker is lost---+    +--cut---> CANCELLED -------+

A task of a step goes to the worker ``task % n``, a group to the worker with the fewest batches.
When a worker's process is lost, its requests are queued again at once. When its engine is lost, it
keeps them: their rollouts continue once the engine is back. After ``move_s`` they start from their
beginning on other workers: a group at once, a task of a step on one that has nothing to do.
A rollout inside a tool call cannot be interrupted. It keeps running while its replacement starts;
its result is discarded.

=============  ======  =========================================================================
its process    engine  what follows for a worker
=============  ======  =========================================================================
READY          READY   it gets requests
READY          LOST    its rollouts wait for the engine; it gets more only if no worker is ready
LOST                   its rollouts are lost with it, until its process answers again
GONE                   as LOST, for so long that no process is expected to answer
=============  ======  =========================================================================
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from trinity.errors import RayLostError, WorkerLostError
from trinity.explorer.failure import cut_short
from trinity.explorer.packing import PackedRequests
from trinity.explorer.requests import RolloutResult
from trinity.runtime.supervisor import RestartPolicy, WorkerState

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from trinity.explorer.requests import RolloutRequest
    from trinity.runtime.ray.worker_handle import Pending, WorkerHandle

POLL_S = 2.0  # so often a worker that runs something says whether its engine is there
RETRY_S = 0.5  # so often a worker is called that is lost, or whose engine is
LOOK_S = 1.0  # Python sees a Ctrl-C that came just as the thread fell asleep when it wakes

logger = logging.getLogger(__name__)


class RequestState(Enum):
    """Where a rollout request is."""

    QUEUED = "queued"  # no worker has it
    RUNNING = "running"  # a worker has it
    CANCELLED = "cancelled"  # its worker returns what has ended of it; no other worker gets it
    ENDED = "ended"  # its reports are there


@dataclass(eq=False, slots=True)
class DispatchedBatch:
    """Requests of one task, which one worker runs."""

    name: Hashable  # None: it is part of a step, whose caller waits for all of its batches
    requests: Sequence[RolloutRequest]
    home: RolloutWorkerClient | None = None  # that runs it if it is ready; None: the least busy one
    state: RequestState = RequestState.QUEUED
    num_losses: int = 0  # how often it was taken from a worker that was lost
    reports: list[RolloutResult] = field(default_factory=list)  # how its requests ended


class RolloutWorkerClient:
    """What the dispatcher knows of one worker, and sends it without waiting.

    Not thread-safe: the dispatcher holds its lock.

    Args:
        handle: of the worker's process.
    """

    def __init__(self, handle: WorkerHandle) -> None:
        self.handle = handle
        self.engine = handle.name.replace("runner", "engine")  # as messages call it
        self.state = self.engine_state = WorkerState.READY  # until a call fails
        self.session = ""  # with the process that is there; "": none was opened
        self.batches: dict[int, DispatchedBatch] = {}  # by the numbers that it was given them with
        self._unsent: list[int] = []
        self._replies: list[Pending] = []  # to messages that nobody waits for
        self._lost_since = 0.0
        self.num_hung = 0
        self.busy_s = 0.0

    @property
    def is_ready(self) -> bool:
        return self.state is self.engine_state is WorkerState.READY

    @property
    def lost_s(self) -> float:
        """Return for how long its process or its engine is lost; 0: both are there."""
        return 0.0 if self.is_ready else time.monotonic() - self._lost_since

    def connected(self, session: str) -> None:
        """Note that its process has opened a session, and send it what it is to run."""
        self.session = session
        self.state = self.engine_state = WorkerState.READY
        self._unsent = list(self.batches)
        self.send()

    def note_engine(self, lost_s: float) -> None:
        """Note for how long its engine is lost, as its process says; 0: it is there."""
        self.engine_state = WorkerState.LOST if lost_s else WorkerState.READY
        self._lost_since = time.monotonic() - lost_s

    def note_loss(self) -> list[DispatchedBatch]:
        """Note that its process is lost; return the batches that are lost with it."""
        if self.state is WorkerState.READY:
            self.state, self._lost_since = WorkerState.LOST, time.monotonic()
        return self.disconnect()

    def disconnect(self) -> list[DispatchedBatch]:
        """End the session; return the batches that it had."""
        batches, self.batches = list(self.batches.values()), {}
        self.session, self._unsent, self._replies = "", [], []
        return batches

    def add(self, number: int, batch: DispatchedBatch) -> None:
        """Let it run a batch; :meth:`send` sends all that were added as one message."""
        batch.state = RequestState.RUNNING
        self.batches[number] = batch
        self._unsent.append(number)

    def send(self) -> None:
        """Send what was added, if there is a session; :meth:`connected` does otherwise."""
        if self.session and self._unsent:
            packed = [(n, PackedRequests.of(self.batches[n].requests)) for n in self._unsent]
            self._replies.append(self.handle.start("begin", self.session, packed))
            self._unsent = []

    def cancel(self, batches: Iterable[DispatchedBatch]) -> None:
        """Ask it to end these, and to return what has ended of them."""
        wanted = set(batches)
        numbers = [number for number, batch in self.batches.items() if batch in wanted]
        for number in numbers:
            self.batches[number].state = RequestState.CANCELLED
        if self.session and numbers:
            self._replies.append(self.handle.start("cut", self.session, numbers))

    def drop(self, batches: Iterable[DispatchedBatch]) -> None:
        """Ask it to end these, and await nothing of them any more."""
        dropped = set(batches)
        self.cancel(dropped)
        self.batches = {n: r for n, r in self.batches.items() if r not in dropped}
        self._unsent = [number for number in self._unsent if number in self.batches]

    def read_replies(self) -> None:
        """Read what came back of the messages; for the thread that polls, without the lock.

        Raises:
            Exception: why one of them did not arrive.
        """
        while self._replies:
            try:
                self._replies[0].result(timeout_s=0.0)
            except TimeoutError:
                return
            self._replies.pop(0)


class Dispatcher:
    """Runs requests on rollout workers, whichever of them are lost meanwhile.

    Args:
        handles: of the workers' processes, in the order of their engines.
        policy: how long a worker that is lost is waited for.
        poll_s: how long a call waits in a worker for requests to end.
    """

    def __init__(
        self,
        handles: Sequence[WorkerHandle],
        *,
        policy: RestartPolicy | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        self._policy = policy or RestartPolicy()
        self._poll_s, self._retry_s = poll_s, min(RETRY_S, poll_s)
        self._numbers = itertools.count()  # a batch gets a new one whenever a worker gets it
        self._changed = threading.Condition()  # guards all below
        self._workers = [RolloutWorkerClient(handle) for handle in handles]
        self._threads: list[threading.Thread] = []  # one for each worker, once there are requests
        self._queue: list[DispatchedBatch] = []
        self._ended: list[DispatchedBatch] = []  # that `ended` has not returned
        self._moved: list[Hashable] = []  # that `moved` has not returned
        self._error: BaseException | None = None  # for whoever waits
        self._is_told = False  # that all are lost
        self._is_stopped = False

    @property
    def num_hung(self) -> int:
        return sum(worker.num_hung for worker in self._workers)

    @property
    def busy_s(self) -> float:
        return sum(worker.busy_s for worker in self._workers)

    def run(self, requests: Sequence[RolloutRequest]) -> list[RolloutResult]:
        """Return how each request ended, in the order of the requests.

        Raises:
            RunFailedError: a run failed and ``explorer.on_failed_run`` is fail.
            WorkerLostError: all workers are lost, or too many were that ran the same task.
            CancelledError: :meth:`stop` was called.
            TrinityError: an error that concerns all runs.
        """
        batches = self._batches_of(requests)
        with self._changed:
            self._error = None
            try:
                self._submit(batches)
                while any(batch.state is not RequestState.ENDED for batch in batches):
                    if self._error is not None:
                        raise self._error
                    if self._is_stopped:
                        raise CancelledError
                    self._changed.wait(LOOK_S)
            except BaseException:
                self._queue = [batch for batch in self._queue if batch not in batches]
                for worker in self._workers:
                    worker.drop(batches)
                raise
        reports = {report.request.key: report for one in batches for report in one.reports}
        return [reports[request.key] for request in requests]

    def begin(self, name: Hashable, requests: Sequence[RolloutRequest]) -> None:
        """Run these on one worker; :meth:`ended` tells how they ended.

        Args:
            name: what they are called; no other group ever has it.
            requests: of one task.
        """
        with self._changed:
            self._submit([DispatchedBatch(name, requests)])

    def ended(self, timeout_s: float) -> list[tuple[Hashable, list[RolloutResult]]]:
        """Return the groups that ended, and how; none where none did in time.

        Raises:
            RunFailedError: a run failed and ``explorer.on_failed_run`` is fail.
            WorkerLostError: all workers are lost, or too many were that ran the same group.
            TrinityError: an error that concerns all runs.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._error, timeout_s)
            if self._error is not None:
                raise self._error
            ended, self._ended = self._ended, []
        return [(batch.name, batch.reports) for batch in ended]

    def cut(self, name: Hashable) -> None:
        """Wait no longer for what has not ended of a group; it may have to be said again."""
        with self._changed:
            for batch in [one for one in self._queue if one.name == name]:
                self._queue.remove(batch)
                self._end(batch, _cut_reports(batch))
            for worker in self._workers:
                worker.cancel([one for one in worker.batches.values() if one.name == name])

    def where(self, name: Hashable) -> str:
        """Return which engine answers a group."""
        with self._changed:
            for worker in self._workers:
                if any(batch.name == name for batch in worker.batches.values()):
                    return worker.engine
        return "no engine"

    def moved(self) -> list[Hashable]:
        """Return the groups that were begun anew since this was asked last."""
        with self._changed:
            moved, self._moved = self._moved, []
        return moved

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def close(self) -> None:
        """End the threads; the workers are closed by who started them. Safe to call twice."""
        self.stop()

    def _batches_of(self, requests: Sequence[RolloutRequest]) -> list[DispatchedBatch]:
        """Return the batches of a step, one for each task."""
        by_task: dict[int, list[RolloutRequest]] = {}
        for request in requests:
            by_task.setdefault(request.key.task, []).append(request)
        return [
            DispatchedBatch(None, own, home=self._workers[task % len(self._workers)])
            for task, own in by_task.items()
        ]

    def _submit(self, batches: Iterable[DispatchedBatch]) -> None:
        self._queue += batches
        if not self._threads:
            self._threads = [
                threading.Thread(
                    target=self._follow, args=[worker], name=f"trinity-{worker.engine}", daemon=True
                )
                for worker in self._workers
            ]
            for thread in self._threads:
                thread.start()
        self._dispatch()

    def _dispatch(self) -> None:
        """Give batches to workers; called whenever a batch or a worker has changed."""
        ready = [worker for worker in self._workers if worker.is_ready]
        there = ready or [one for one in self._workers if one.state is WorkerState.READY]
        idle = [worker for worker in there if not worker.batches]
        if ready:
            self._take_from_lost_engines(ready, idle)
        for batch in list(self._queue):
            takers = _takers(batch, there, idle)
            if takers:
                self._queue.remove(batch)
                taker = min(takers, key=lambda worker: len(worker.batches))
                taker.add(next(self._numbers), batch)
        for worker in self._workers:
            worker.send()
        self._tell_if_all_are_lost()
        self._changed.notify_all()

    def _take_from_lost_engines(
        self, ready: Sequence[RolloutWorkerClient], idle: Sequence[RolloutWorkerClient]
    ) -> None:
        """Queue again what waits for an engine too long and others would run now."""
        for worker in self._workers:
            if worker.lost_s <= self._policy.move_s:
                continue
            running = [r for r in worker.batches.values() if r.state is RequestState.RUNNING]
            moved = [batch for batch in running if _takers(batch, ready, idle)]
            if moved:
                logger.warning(
                    "%s has been lost for %.0f s: other engines take over %d of its rollout "
                    "requests", worker.engine, worker.lost_s, len(moved),
                )  # fmt: skip
                worker.drop(moved)
                self._queue_again(moved, lost=worker)

    def _queue_again(
        self, batches: Sequence[DispatchedBatch], *, lost: RolloutWorkerClient
    ) -> None:
        for batch in batches:
            batch.state = RequestState.QUEUED
            batch.num_losses += 1
            if batch.num_losses > self._policy.num_losses:
                key, count = batch.requests[0].key, batch.num_losses
                cause = f"task {key.task} of step {key.batch} has lost {count} workers in a row"
                error = WorkerLostError(lost.engine, cause=cause, is_final=True)
                self._error = self._error or error
        self._queue[:0] = batches
        self._moved += [batch.name for batch in batches if batch.name is not None]

    def _tell_if_all_are_lost(self) -> None:
        lost_s = min(worker.lost_s for worker in self._workers)
        num_waiting = len(self._queue) + sum(len(worker.batches) for worker in self._workers)
        if not lost_s:
            self._is_told = False
        elif lost_s > self._policy.move_s and num_waiting and not self._is_told:
            self._is_told = True
            logger.warning(
                "%s: lost for %.0f s, and there is no other engine: %d rollout requests wait",
                ", ".join(worker.engine for worker in self._workers), lost_s, num_waiting,
            )  # fmt: skip

    def _end(self, batch: DispatchedBatch, reports: list[RolloutResult]) -> None:
        batch.state, batch.reports = RequestState.ENDED, reports
        if batch.name is not None:
            self._ended.append(batch)
        self._changed.notify_all()

    def _follow(self, worker: RolloutWorkerClient) -> None:
        """Speak with a worker as long as there is something to say, in a thread of its own."""
        while self._has_work(worker):
            try:
                if worker.session:
                    self._poll(worker)
                else:
                    self._connect(worker)
            except BaseException as error:  # noqa: BLE001 -- raised by whoever waits, or a loss
                with self._changed:
                    self._note_failure(worker, error)
                    self._changed.wait_for(lambda: self._is_stopped, self._retry_s)

    def _has_work(self, worker: RolloutWorkerClient) -> bool:
        with self._changed:
            while worker.is_ready and not (self._is_stopped or worker.batches):
                self._changed.wait(LOOK_S)
            return not self._is_stopped

    def _connect(self, worker: RolloutWorkerClient) -> None:
        session = uuid.uuid4().hex
        worker.handle.call("open", session)
        with self._changed:
            worker.connected(session)
            self._dispatch()

    def _poll(self, worker: RolloutWorkerClient) -> None:
        with self._changed:
            for_all = all(batch.name is None for batch in worker.batches.values())
            limit_s = self._poll_s if worker.is_ready else self._retry_s
        ends, engine_lost_s = worker.handle.call("ended", worker.session, limit_s, for_all=for_all)
        with self._changed:
            worker.note_engine(engine_lost_s)
            for number, answer in ends:
                worker.busy_s, worker.num_hung = worker.busy_s + answer.busy_s, answer.num_hung
                batch = worker.batches.pop(number, None)
                if batch is not None:  # else another worker has it meanwhile
                    self._end(batch, answer.unpacked(batch.requests))
            self._dispatch()
        worker.read_replies()

    def _note_failure(self, worker: RolloutWorkerClient, error: BaseException) -> None:
        """Note a loss; any other error is raised by whoever waits."""
        if self._is_stopped:
            return
        is_lost, has_others = worker.state is not WorkerState.READY, len(self._workers) > 1
        if is_lost and has_others and not isinstance(error, WorkerLostError | RayLostError):
            error = WorkerLostError(worker.handle.name, cause=f"it is not built again: {error}")
        if isinstance(error, WorkerLostError):
            self._note_loss(worker, error)
        else:
            self._error = self._error or error
            worker.disconnect()
        self._dispatch()

    def _note_loss(self, worker: RolloutWorkerClient, error: WorkerLostError) -> None:
        is_new = worker.state is WorkerState.READY
        batches = worker.note_loss()
        for batch in batches:
            if batch.state is RequestState.CANCELLED:
                self._end(batch, _cut_reports(batch))
        again = [one for one in batches if one.state is RequestState.RUNNING]
        if is_new:
            logger.warning("%s; its %d rollout requests are queued again", error, len(again))
        self._queue_again(again, lost=worker)
        if error.is_final or worker.lost_s > self._policy.return_s:
            worker.state = WorkerState.GONE
            if not error.is_final:
                error = self._policy.too_late(error, state=WorkerState.LOST)
        if all(one.state is WorkerState.GONE for one in self._workers):
            self._error = self._error or error


def _takers(
    batch: DispatchedBatch,
    there: Sequence[RolloutWorkerClient],
    idle: Sequence[RolloutWorkerClient],
) -> Sequence[RolloutWorkerClient]:
    """Return the workers that may run a batch now.

    A batch of a step whose own worker is lost waits for it, or for one that has nothing to do:
    the others have as much to do themselves, and the lost one may be back before they are done.
    """
    if batch.home is None:
        return there
    return [batch.home] if batch.home in there else idle


def _cut_reports(batch: DispatchedBatch) -> list[RolloutResult]:
    return [RolloutResult(request=one, failure=cut_short(one)) for one in batch.requests]
