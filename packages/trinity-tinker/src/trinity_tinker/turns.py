"""Runs take turns: one request of a run, then one of the next, each run's in the order it sent."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity_tinker.store import Request

__all__ = ["Turns"]

logger = logging.getLogger("trinity.tinker")


class Turns:
    """A thread that does the requests of all runs; a missing number holds its run alone back.

    Args:
        do: does a request; it raises nothing.
        next_seq: the number of the first request of a run that is to be done.
    """

    def __init__(self, do: Callable[[Request], None], *, next_seq: Callable[[str], int]) -> None:
        self._do = do
        self._find_next = next_seq
        self._waiting: dict[str, dict[int, Request]] = {}
        self._next: dict[str, int] = {}
        self._order: deque[str] = deque()
        self._doing = ""  # the run whose request is being done
        self._jobs: deque[Callable[[], None]] = deque()
        self._news = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="tinker-training", daemon=True)
        self._thread.start()

    def add(self, request: Request) -> None:
        """Have a request done when it is its turn."""
        with self._news:
            if request.scope not in self._next:
                self._next[request.scope] = self._find_next(request.scope)
                self._order.append(request.scope)
            self._waiting.setdefault(request.scope, {})[request.seq] = request
            self._news.notify_all()

    def missing(self, scope: str) -> int | None:
        """Return the number of a request that did not come and holds its run back, if one does."""
        with self._news:
            waiting = self._waiting.get(scope)
            if not waiting or scope == self._doing or self._next[scope] in waiting:
                return None
            return self._next[scope]

    def post(self, job: Callable[[], None]) -> None:
        """Have something done in the thread, between two requests."""
        with self._news:
            self._jobs.append(job)
            self._news.notify_all()

    def close(self) -> None:
        """End after the request that is being done."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while (request := self._take()) is not None:
            self._do(request)
            with self._news:
                self._next[request.scope] = request.seq + 1
                self._doing = ""

    def _take(self) -> Request | None:
        """Return the next request, once there is one; None: this is closed."""
        while True:
            with self._news:
                while not self._jobs and not self._is_closed:
                    if request := self._ready():
                        return request
                    self._news.wait()
                if self._is_closed:
                    return None
                job = self._jobs.popleft()
            try:
                job()
            except Exception:  # the thread is that of all runs
                logger.exception("a task between two requests failed")

    def _ready(self) -> Request | None:
        for scope in list(self._order):
            request = self._waiting.get(scope, {}).pop(self._next[scope], None)
            if request is not None:
                self._order.remove(scope)  # the others come first next time
                self._order.append(scope)
                self._doing = scope
                return request
        return None
