"""Runs that sample from one base model share its batch: who waits for a place gets one in turn."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trinity_tinker.samplers import Sampler

__all__ = ["SamplingTurns"]

MAX_ROWS = 512  # in an engine at a time: twice its batch, so that it never waits for requests


class SamplingTurns:
    """Lets requests into engines; for one event loop.

    An engine answers in the order in which it was asked. So it is given little more than it
    computes at a time, and the requests of different weights take turns for the rest: one run's
    thousand requests do not hold back another's one. A request is let in whole: one of more
    samples than an engine has places for holds back the others until it is answered.
    """

    def __init__(self) -> None:
        self._num_rows: Counter[object] = Counter()  # let into each engine
        self._waiting: dict[object, deque[_Queue]] = {}  # of each engine: who is next comes first

    @asynccontextmanager
    async def of(self, sampler: Sampler, *, rows: int) -> AsyncIterator[None]:
        """Wait for a place of so many samples; it is free again at the end of the block."""
        engine = sampler.sampled
        if self._num_rows[engine] >= MAX_ROWS:
            await self._wait(engine, sampler, rows)
        else:
            self._num_rows[engine] += rows
        try:
            yield
        finally:
            self._num_rows[engine] -= rows
            self._admit(engine)

    async def _wait(self, engine: object, sampler: Sampler, rows: int) -> None:
        queues = self._waiting.setdefault(engine, deque())
        queue = next((one for one in queues if one.sampler is sampler), None)
        if queue is None:
            queue = _Queue(sampler)
            queues.append(queue)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.turns.append((turn, rows))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had its place in this moment
                self._num_rows[engine] -= rows
                self._admit(engine)
            raise

    def _admit(self, engine: object) -> None:
        queues = self._waiting.get(engine, deque())
        while queues and self._num_rows[engine] < MAX_ROWS:
            queue = queues.popleft()
            turn, rows = queue.turns.popleft()
            if queue.turns:
                queues.append(queue)  # behind the others
            if not turn.done():  # else it was cancelled
                self._num_rows[engine] += rows
                turn.set_result(None)


class _Queue:
    """The requests that wait for samples of the same weights."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.turns: deque[tuple[asyncio.Future[None], int]] = deque()
