"""Runs take turns: one request of a run, then one of the next, each run's in the order it sent."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity_tinker.store import Request

__all__ = ["Turns"]


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

    def _take(self) -> Request | None:
        """Return the next request, once there is one; None: this is closed."""
        with self._news:
            while not self._is_closed:
                while self._jobs:
                    self._jobs.popleft()()
                for scope in list(self._order):
                    request = self._waiting.get(scope, {}).pop(self._next[scope], None)
                    if request is not None:
                        self._order.remove(scope)  # the others come first next time
                        self._order.append(scope)
                        return request
                self._news.wait()
            return None
