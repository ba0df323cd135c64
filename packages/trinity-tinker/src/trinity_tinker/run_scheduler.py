"""Runs take turns: one request of a run, then one of the next, each run's in the order it sent."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity_tinker.store import Request

__all__ = ["RunScheduler"]

logger = logging.getLogger("trinity.tinker")


class RunScheduler:
    """A thread that does the requests of all runs; a missing number holds its run alone back.

    Clients number the requests of a run, and repeat one that was not acknowledged for a few
    minutes. A number that has not come by then never will: what follows it is given up.

    Args:
        do: does a request; it raises nothing.
        give_up: ends requests of a run that cannot be done in order, given the number that they
            had to follow; it raises nothing.
        next_seq: the number of the first request of a run that is to be done.
        gap_s: how long a run waits for a missing number, since the last request that it was sent.
        choose: which of the runs' next requests, given in turn, is done now; it raises nothing.
    """

    def __init__(
        self,
        do: Callable[[Request], None],
        *,
        give_up: Callable[[Sequence[Request], int], None],
        next_seq: Callable[[str], int],
        gap_s: float,
        choose: Callable[[Sequence[Request]], Request] = itemgetter(0),
    ) -> None:
        self._do = do
        self._choose = choose
        self._give_up = give_up
        self._find_next = next_seq
        self._gap_s = gap_s
        self._waiting: dict[str, dict[int, Request]] = {}
        self._next: dict[str, int] = {}
        self._changed: dict[str, float] = {}  # when a run was last sent, or did, something
        self._order: deque[str] = deque()
        self._doing: Request | None = None
        self._jobs: deque[Callable[[], None]] = deque()
        self._news = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="tinker-training", daemon=True)
        self._thread.start()

    def add(self, request: Request) -> None:
        """Have a request done when it is its turn."""
        with self._news:
            scope = request.scope
            if scope not in self._next:
                self._next[scope] = self._find_next(scope)
                self._order.append(scope)
            self._changed[scope] = time.monotonic()
            # A number below the next one was given up, and comes too late to be done in order.
            if request.seq < self._next[scope]:
                self._jobs.append(partial(self._give_up, [request], request.seq))
            else:
                self._waiting.setdefault(scope, {})[request.seq] = request
            self._news.notify_all()

    def missing(self, scope: str) -> int | None:
        """Return the number of a request that did not come and holds its run back, if one does."""
        with self._news:
            return self._missing(scope)

    def post(self, job: Callable[[], None]) -> None:
        """Have something done in the thread, between two requests."""
        with self._news:
            self._jobs.append(job)
            self._news.notify_all()

    def stop(self) -> Request | None:
        """Let no further request begin; return the one that is being done, if one is."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()
            return self._doing

    def close(self) -> None:
        """End after the request that is being done."""
        self.stop()
        self._thread.join()

    def _work(self) -> None:
        while (request := self._take()) is not None:
            self._do(request)
            with self._news:
                self._next[request.scope] = request.seq + 1
                self._changed[request.scope] = time.monotonic()
                self._doing = None

    def _take(self) -> Request | None:
        """Return the next request, once there is one; None: this is closed."""
        while True:
            with self._news:
                while not self._is_closed:
                    self._end_gaps()  # also of a run beside one that always has a request
                    if self._jobs:
                        break
                    if request := self._ready():
                        return request
                    self._news.wait(self._until_next_gap_ends())
                if self._is_closed:
                    return None
                job = self._jobs.popleft()
            try:
                job()
            except Exception:  # the thread is that of all runs
                logger.exception("a task between two requests failed")

    def _ready(self) -> Request | None:
        found = (self._waiting.get(scope, {}).get(self._next[scope]) for scope in self._order)
        ready = [request for request in found if request is not None]
        if not ready:
            return None
        request = self._choose(ready)
        self._doing = request
        del self._waiting[request.scope][request.seq]
        self._order.remove(request.scope)  # the others come first next time
        self._order.append(request.scope)
        return request

    def _missing(self, scope: str) -> int | None:
        waiting = self._waiting.get(scope)
        is_doing = self._doing is not None and self._doing.scope == scope
        if not waiting or is_doing or self._next[scope] in waiting:
            return None
        return self._next[scope]

    def _until_next_gap_ends(self) -> float | None:
        """Return the seconds until a run has waited long enough; None: none waits for a number."""
        gaps = [self._changed[scope] for scope in self._order if self._missing(scope) is not None]
        return max(0.0, min(gaps) + self._gap_s - time.monotonic()) if gaps else None

    def _end_gaps(self) -> None:
        """Give up what has waited long enough; its run goes on behind it."""
        limit = time.monotonic() - self._gap_s
        for scope in self._order:
            missing = self._missing(scope)
            if missing is None or self._changed[scope] > limit:
                continue
            late = sorted(self._waiting.pop(scope).items())
            self._next[scope] = late[-1][0] + 1
            requests = [request for _, request in late]
            self._jobs.append(partial(self._give_up, requests, missing))
