"""The thread that steps vLLM, and what waits for it.

ask() ------+--> waiting --> the thread: add, step, answer --> the requests' futures
do() -------+--> jobs: once nothing is being answered, or before the next step
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trinity.common.generation.requests import begins
from trinity.errors import TrinityError

from trinity_engine_vllm.asked import Asked, closed, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity.errors import ModelError

    from trinity_engine_vllm.stepping import Stepping

__all__ = ["Worker"]

_CLOSE_TIMEOUT_S = 30.0
_of_process = threading.RLock()  # vLLM keeps state of the process: its engines compute in turns
_in_process: set[Worker] = set()  # that were started and not closed
# vLLM's own engines of closed ones: with the first that goes, all lose what they share.
_retired: list[Any] = []


class Worker:
    """Makes, steps and ends one engine of vLLM in a thread of its own; thread-safe.

    Args:
        make: starts vLLM.

    Raises:
        ModelError: vLLM cannot run the model.
    """

    stepping: Stepping  # for its properties; all else is the thread's

    def __init__(self, make: Callable[[], Stepping]) -> None:
        self._make = make
        self.busy_s = 0.0  # spent on generating
        self._changed = threading.Condition()
        self._waiting: deque[Asked] = deque()
        self._jobs: deque[Callable[[], None]] = deque()  # once nothing is being answered
        self._urgent: deque[Callable[[], None]] = deque()  # before the next step
        self._has_cancelled = self._is_closed = False
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._work, args=(started,), name="rollout-engine", daemon=True
        )
        self._thread.start()
        started.result()

    @property
    def num_open(self) -> int:
        """Return how many requests have no answer and were not given up."""
        with self._changed:
            return len(self._waiting) + self.stepping.num_open

    def ask(self, asked: Asked) -> None:
        """Queue a request, or a text to score.

        Raises:
            ModelError: the engine is closed, sleeps, or holds a part of new weights.
        """
        with self._changed:
            self._check_open()
            self.stepping.check_serves()
            self._waiting.append(asked)
            self._changed.notify_all()

    def do(self, job: Callable[[], Sequence[Asked]], *, what: str, is_urgent: bool) -> None:
        """Let the thread do something between two steps; returns when it is done.

        Args:
            job: it; returns what is to be asked again after it.
            what: it does, for messages.
            is_urgent: it is done before the next step, whatever is being answered.

        Raises:
            ModelError: it failed, or the engine is closed.
            TrinityError: the job's own.
        """
        done: Future[None] = Future()

        def run() -> None:
            try:
                self._check_open()
                for waiting in job():
                    if not waiting.future.done():
                        self.stepping.give(waiting)
            except TrinityError as error:  # as it is: weights that broke off on their way, say
                done.set_exception(error)
            except Exception as error:  # noqa: BLE001 -- the caller's
                done.set_exception(self._failure(error, what))
            else:
                done.set_result(None)

        with self._changed:
            self._check_open()
            (self._urgent if is_urgent else self._jobs).append(run)
            self._changed.notify_all()
        done.result()

    def forget_cancelled(self) -> None:
        """Let go of what nobody waits for any more, before the next step."""
        with self._changed:
            self._has_cancelled = True
            kept = [one for one in self._waiting if not one.future.done()]
            self._waiting = deque(kept)
            self._changed.notify_all()

    def close(self) -> None:
        """End vLLM and the thread; requests without an answer fail."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed()

    def _work(self, started: Future[None]) -> None:
        try:
            with _of_process:
                self.stepping = self._make()
                _in_process.add(self)
        except Exception as error:  # noqa: BLE001 -- the constructor's
            started.set_exception(failure(error, "start"))
            return
        started.set_result(None)
        try:
            while self._turn():
                pass
        finally:
            self._end()

    def _turn(self) -> bool:
        """Do what is next, waiting until there is something; return whether to go on."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self._waiting or self._jobs or self._has_work()
            )
            if self._is_closed:
                return False
            job = self._urgent.popleft() if self._urgent else None
            if job is None and self._jobs and not self.stepping.num_open:
                job = self._jobs.popleft()
            joining = [] if job or self._jobs else [*self._waiting]
            if joining:
                self._waiting.clear()
            has_cancelled = self._has_cancelled
            if job is None:  # else the next step hears of it
                self._has_cancelled = False
        if job is not None:
            with _of_process:
                job()
            return True
        began = time.perf_counter()
        try:
            with _of_process:
                self._step(joining, has_cancelled=has_cancelled)
        except Exception as error:  # noqa: BLE001 -- the requests' failure; the engine lives on
            self.stepping.fail_open(self._failure(error, "generate"))
        self.busy_s += time.perf_counter() - began
        return True

    def _failure(self, error: Exception, what: str) -> ModelError:
        return failure(error, what, is_broken=self.stepping.is_broken_by(error))

    def _has_work(self) -> bool:
        return bool(self._urgent or self.stepping.num_open)

    def _step(self, joining: Sequence[Asked], *, has_cancelled: bool) -> None:
        for waiting in joining:
            if begins(waiting.future):
                self.stepping.give(waiting)
        if has_cancelled:
            self.stepping.drop_cancelled()
        self.stepping.step()

    def _end(self) -> None:
        with self._changed:
            self._is_closed = True
            left, jobs = [*self._waiting], [*self._urgent, *self._jobs]
            for queue in (self._waiting, self._urgent, self._jobs):
                queue.clear()
        for job in jobs:
            job()
        ended = self.stepping.end()
        for waiting in left:
            with suppress(InvalidStateError):
                waiting.future.set_exception(closed())
        with _of_process:
            _in_process.discard(self)
            _retired.append(ended)
            while _retired and not _in_process:
                _retired.pop().engine_core.shutdown()
