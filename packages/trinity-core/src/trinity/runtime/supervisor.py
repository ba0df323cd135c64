"""Supervise the processes of a run: their states, their heartbeats, when they are started again.

    STARTING --has what it needs--> READY <---answers again--- UNRESPONSIVE
       ^                             | |                        ^    |
       |                             | +---no heartbeat---------+    | none within the limit
       |                             |                               | (then it is killed)
       +--another process is there-- LOST <--------------------------+
                                      +--none takes its place in time--> GONE

A thread of the worker answers heartbeats, however long a step takes. So a process that is stopped
(SIGSTOP, a debugger) or whose machine hangs is noticed:

unresponsive for ``WARN_S``   its name is logged, with what to do
for a part of the limit       it is ended: an engine or a rollout worker is started again; a trainer
                              is lost and the run goes back to its checkpoint
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from trinity.common.config.synchronizer import LEAST_LOAD_S
from trinity.common.memory import LACK_OF_MEMORY, num_oom_kills
from trinity.errors import RunFailedError, WorkerLostError, WorkerWaitsError
from trinity.explorer.failure import TRACEBACKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.runtime.ray.worker_handle import WorkerHandle

logger = logging.getLogger(__name__)
tracebacks = logging.getLogger(TRACEBACKS)

WARN_S = 30.0  # without a heartbeat
PART_OF_LIMIT = 0.7  # without one, that is a loss: it is noticed up to two pauses late
PAUSE_S = 10.0  # between two heartbeats; a tenth of the limit where that is less
LATE = 3.0  # pauses: after as many, this process itself was stopped, and asks anew
CLOSE_S = 6.0  # for the last round of heartbeats to end

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0

MAX_RESTARTS = 3  # of all workers, without a new checkpoint in between


class WorkerState(Enum):
    """What the run knows of one process."""

    STARTING = "starting"  # it is there, and waits for what it needs
    READY = "ready"
    UNRESPONSIVE = "unresponsive"  # no heartbeat for a while: it may continue
    LOST = "lost"  # it ended, or was ended; another may take its place
    GONE = "gone"  # none takes its place


class WorkerStatus:
    """The state of a worker, and since when it has it."""

    def __init__(self, state: WorkerState) -> None:
        self.state = state
        self.since = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since

    def enter(self, state: WorkerState) -> None:
        """Give it a state; the time of the one that it has goes on."""
        if state is not self.state:
            self.state, self.since = state, time.monotonic()


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartPolicy:
    """How long a worker is waited for, and how often it may be lost before it did anything."""

    return_s: float = 300.0  # until another process took its place: a large model takes its time
    weights_s: float = 900.0  # then until that was given weights; who brings them gives up earlier
    move_s: float = 60.0  # until another one does what it had to do, if there is another
    num_losses: int = 3

    @classmethod
    def of_rollout_worker(cls, *, sync_timeout: float) -> RestartPolicy:
        """Return that with an engine: longer than whoever brings it weights has for a load.

        >>> RestartPolicy.of_rollout_worker(sync_timeout=3600).weights_s
        3900.0
        """
        return cls(weights_s=max(LEAST_LOAD_S, sync_timeout) + cls().return_s)

    def limit_s(self, state: WorkerState) -> float:
        return self.weights_s if state is WorkerState.STARTING else self.return_s

    def too_late(self, error: WorkerLostError, *, state: WorkerState) -> WorkerLostError:
        """Return why a worker is given up that was in a state for too long."""
        is_there = state is WorkerState.STARTING
        what = "it was given none" if is_there else "no other process took its place"
        cause = f"{error.cause}, and {what} in {self.limit_s(state):.0f} s"
        return WorkerLostError(error.worker, cause=cause)


class Recovery:
    """Waits for a worker that was lost, and counts how often it was.

    lost ---(return_s)---> another is there ---(weights_s)---> it answers

    Args:
        worker: whose process may be lost.
        policy: how long it is waited for.
    """

    def __init__(self, worker: WorkerHandle, *, policy: RestartPolicy | None = None) -> None:
        self._worker = worker
        self._policy = policy or RestartPolicy()
        self._num_losses = 0

    def note_answer(self) -> None:
        """Forgive earlier losses: the worker did something."""
        self._num_losses = 0

    def note_loss(self, error: WorkerLostError) -> None:
        """Count a loss.

        Raises:
            WorkerLostError: it was one too many.
        """
        if isinstance(error, WorkerWaitsError):
            logger.warning("%s; what it had to do is done once it has them", error)
            return
        self._num_losses += 1
        if error.is_final or self._num_losses > self._policy.num_losses:
            raise error
        logger.warning("%s; it is started again and what it had to do is done again", error)

    def loss_of(self, error: Exception, *, has_others: bool) -> WorkerLostError:
        """Return the loss that an error of a call is.

        Args:
            error: of the call.
            has_others: others do the worker's work meanwhile: one that is gone, or cannot be
                built again, is then waited for as others are.

        Raises:
            Exception: the error, where it is no loss.
        """
        if isinstance(error, WorkerLostError) and not (error.is_final and has_others):
            return error
        if not has_others:
            raise error
        cause = error.cause if isinstance(error, WorkerLostError) else f"it is not built: {error}"
        return WorkerLostError(self._worker.name, cause=cause)

    def wait_until_ready(
        self,
        method: str,
        *args: Any,
        is_wanted: Callable[[], bool] = lambda: True,
        has_others: bool = False,
    ) -> Any:  # Any: what the method returns
        """Return what the worker answers once it is back, and has its weights.

        Args:
            method: of the worker.
            args: of the method.
            is_wanted: whether to go on.
            has_others: as for :meth:`loss_of`.

        Raises:
            WorkerLostError: no process took its place in time, or it was given no weights
                in time, or nobody wants it any more.
            Exception: the method's own, or why the worker is not built.
        """
        status, pause_s = WorkerStatus(WorkerState.LOST), _FIRST_PAUSE_S
        while True:
            try:
                return self._worker.call(method, *args)
            except Exception as fault:
                error = self.loss_of(fault, has_others=has_others)
                waits = isinstance(error, WorkerWaitsError)
                status.enter(WorkerState.STARTING if waits else WorkerState.LOST)
                if error.is_final or not is_wanted():
                    raise
                if status.seconds + pause_s > self._policy.limit_s(status.state):
                    raise self._policy.too_late(error, state=status.state) from fault
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


@dataclass(slots=True)
class _Heartbeat:
    answer: Callable[[], str | None]  # as WorkerHandle.heartbeat gives it
    since: float
    state: WorkerState = WorkerState.READY


class HealthMonitor:
    """Asks workers for heartbeats in a thread, and ends those that give none.

    Args:
        workers: all are built.
        limit_s: within which one that is unresponsive is ended.
        where: by the worker's name, the process that it is in.
    """

    def __init__(
        self, workers: Sequence[WorkerHandle], *, limit_s: float, where: Mapping[str, str]
    ) -> None:
        self._workers = workers
        self._limit_s = limit_s
        self._pause_s = min(PAUSE_S, limit_s / 10)
        self._heartbeats: dict[str, _Heartbeat] = {}  # that were asked for last
        self._where = dict(where)
        self._looked = time.monotonic()
        self._failed: set[tuple[str, type]] = set()  # why a worker could not be asked, told once
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trinity-health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, *, waits: bool = True) -> None:
        """Ask no more; safe to call twice.

        Args:
            waits: return once nobody is asked any more; False: whoever is asked may never answer.
        """
        self._closed.set()
        if self._thread.is_alive() and waits:
            self._thread.join(CLOSE_S)

    def look(self) -> None:
        """Ask everybody once, and see who has not answered since."""
        now = time.monotonic()
        if now - self._looked > LATE * self._pause_s:
            self._heartbeats.clear()
        self._looked = now
        for worker in self._workers:
            if self._closed.is_set():
                return
            try:
                self._look_at(worker, now)
            except WorkerLostError as error:  # Ray itself is lost or left, which others tell
                logger.info("%s cannot be asked: %s", worker.name, error.cause)
                if error.is_final:
                    self._closed.set()
            except Exception as error:  # noqa: BLE001 -- the others are looked at, and it again
                self._tell_failure(worker, error)

    def _run(self) -> None:
        while not self._closed.wait(self._pause_s):
            self.look()

    def _look_at(self, worker: WorkerHandle, now: float) -> None:
        heartbeat = self._heartbeats.get(worker.name)
        answer = None if heartbeat is None else heartbeat.answer()
        if heartbeat is None or answer is not None:
            self._where |= {worker.name: answer} if answer else {}
            self._heartbeats[worker.name] = _Heartbeat(worker.heartbeat(), now)
            return
        silence_s = now - heartbeat.since
        if silence_s > PART_OF_LIMIT * self._limit_s:
            self._end(worker, silence_s)
        elif silence_s > min(WARN_S, self._limit_s / 3) and heartbeat.state is WorkerState.READY:
            heartbeat.state = WorkerState.UNRESPONSIVE
            logger.warning(
                "%s (%s) is unresponsive, it has not answered for %.0f s: it is stopped, holds "
                "Python's lock for a long call, or its machine is very busy. "
                "If it is stopped, let it go on (kill -CONT); it is ended within %.0f s "
                "(synchronizer.sync_timeout).",
                worker.name, self._where[worker.name], silence_s, self._limit_s,
            )  # fmt: skip

    def _end(self, worker: WorkerHandle, silence_s: float) -> None:
        logger.warning(
            "%s (%s) has not answered for %.0f s and is ended: %s.",
            worker.name, self._where[worker.name], silence_s,
            "it is started again" if worker.comes_back else "the run goes back to its checkpoint",
        )  # fmt: skip
        del self._heartbeats[worker.name]
        if not worker.comes_back:
            cause = f"it is there and has not answered for {silence_s:.0f} s"
            worker.lost = WorkerLostError(worker.name, cause=cause)
        worker.kill(comes_back=worker.comes_back)  # one that is stopped ends 5 s later

    def _tell_failure(self, worker: WorkerHandle, error: Exception) -> None:
        """Say once what keeps a worker from being asked; the log has the traceback."""
        self._heartbeats.pop(worker.name, None)
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if (worker.name, type(error)) in self._failed:
            return
        self._failed.add((worker.name, type(error)))
        tracebacks.error("%s was not asked whether it is there", worker.name, exc_info=error)
        logger.warning(
            "whether %s is there could not be asked (%s). It is asked again; where this stays so, "
            "a process that is stopped is not noticed: stop the run and start it again.",
            worker.name, what,
        )  # fmt: skip


class RestartLimit:
    """Counts how often the workers of a stage were lost since its last checkpoint."""

    def __init__(self) -> None:
        self._place = ""
        self._num_lost = 0
        self._num_killed = num_oom_kills()

    def note_loss(self, error: WorkerLostError, *, place: str) -> str:
        """Return what to say before the workers are started anew from ``place``.

        Raises:
            RunFailedError: it was tried often enough.
        """
        if place != self._place:
            self._place, self._num_lost = place, 0
        self._num_lost += 1
        cause = f"{error.cause.rstrip('.')}{self._memory()}"
        if self._num_lost > MAX_RESTARTS:
            raise RunFailedError(
                f"the process of {error.worker} was lost, the {self._num_lost}th loss since "
                f"{place}: {cause}. The workers were started anew {MAX_RESTARTS} times, which did "
                f"not help. logs/{error.worker}.log in the run directory has its last lines. "
                f"Correct that, then run the same command: it goes on from {place}."
            ) from error
        return (
            f"the process of {error.worker} was lost ({cause}): all workers are started anew and "
            f"go on from {place} (restart {self._num_lost} of {MAX_RESTARTS})"
        )

    def _memory(self) -> str:
        """Return that the system ended a process for lack of memory, if it did since last time."""
        before, self._num_killed = self._num_killed, num_oom_kills()
        if self._num_killed <= before:
            return ""
        return f"; {LACK_OF_MEMORY}"
