"""A rollout worker as the dispatcher knows it: a process that executes workflows on one engine.

=============  ======  =========================================================================
its process    engine  what follows
=============  ======  =========================================================================
READY          READY   it gets requests
READY          LOST    its rollouts wait for the engine; it gets more only if no worker is ready
LOST                   its rollouts are lost with it, until its process answers again
GONE                   as LOST, for so long that no process is expected to answer
=============  ======  =========================================================================
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from trinity.explorer.packing import PackedOrders
from trinity.runtime.supervisor import WorkerState

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from trinity.explorer.requests import RolloutRequest, RolloutResult
    from trinity.runtime.ray.worker_handle import Pending, WorkerHandle


class RequestState(Enum):
    """Where a rollout request is."""

    QUEUED = "queued"  # no worker has it
    RUNNING = "running"  # a worker has it
    CANCELLED = "cancelled"  # its worker returns what has ended of it; no other worker gets it
    ENDED = "ended"  # its reports are there


@dataclass(eq=False, slots=True)
class DispatchedBatch:
    """Orders of one task, which one worker runs."""

    name: Hashable  # None: it is part of a step, whose caller waits for all of its requests
    orders: Sequence[RolloutRequest]
    home: RolloutWorkerClient | None = None  # that runs it if it is ready; None: the least busy one
    state: RequestState = RequestState.QUEUED
    num_losses: int = 0  # how often it was taken from a worker that was lost
    reports: list[RolloutResult] = field(default_factory=list)  # how its orders ended


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
        self.requests: dict[int, DispatchedBatch] = {}  # by the numbers that it was given them with
        self._unsent: list[int] = []
        self._replies: list[Pending] = []  # to messages that nobody waits for
        self._lost_since = 0.0
        self.num_hung = 0
        self.busy_s = 0.0

    @property
    def is_ready(self) -> bool:
        """Return whether its process and its engine are there."""
        return self.state is self.engine_state is WorkerState.READY

    @property
    def lost_s(self) -> float:
        """Return for how long its process or its engine is lost; 0: both are there."""
        return 0.0 if self.is_ready else time.monotonic() - self._lost_since

    def connected(self, session: str) -> None:
        """Note that its process has opened a session, and send it what it is to run."""
        self.session = session
        self.state = self.engine_state = WorkerState.READY
        self._unsent = list(self.requests)
        self.send()

    def note_engine(self, lost_s: float) -> None:
        """Note for how long its engine is lost, as its process says; 0: it is there."""
        self.engine_state = WorkerState.LOST if lost_s else WorkerState.READY
        self._lost_since = time.monotonic() - lost_s

    def note_loss(self) -> list[DispatchedBatch]:
        """Note that its process is lost; return the requests that are lost with it."""
        if self.state is WorkerState.READY:
            self.state, self._lost_since = WorkerState.LOST, time.monotonic()
        return self.disconnect()

    def disconnect(self) -> list[DispatchedBatch]:
        """End the session; return the requests that it had."""
        requests, self.requests = list(self.requests.values()), {}
        self.session, self._unsent, self._replies = "", [], []
        return requests

    def add(self, number: int, request: DispatchedBatch) -> None:
        """Let it run a request; :meth:`send` sends all that were added as one message."""
        request.state = RequestState.RUNNING
        self.requests[number] = request
        self._unsent.append(number)

    def send(self) -> None:
        """Send what was added, if there is a session; :meth:`connected` does otherwise."""
        if self.session and self._unsent:
            packed = [(n, PackedOrders.of(self.requests[n].orders)) for n in self._unsent]
            self._replies.append(self.handle.start("begin", self.session, packed))
            self._unsent = []

    def cancel(self, requests: Iterable[DispatchedBatch]) -> None:
        """Ask it to end these, and to return what has ended of them."""
        wanted = set(requests)
        numbers = [number for number, request in self.requests.items() if request in wanted]
        for number in numbers:
            self.requests[number].state = RequestState.CANCELLED
        if self.session and numbers:
            self._replies.append(self.handle.start("cut", self.session, numbers))

    def drop(self, requests: Iterable[DispatchedBatch]) -> None:
        """Ask it to end these, and await nothing of them any more."""
        dropped = set(requests)
        self.cancel(dropped)
        self.requests = {n: r for n, r in self.requests.items() if r not in dropped}
        self._unsent = [number for number in self._unsent if number in self.requests]

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
