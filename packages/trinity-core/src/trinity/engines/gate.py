"""Decides when the waiting requests become a batch.

    run_began() -> away --submit()--> waiting --take()--> being answered --answered()--> away
                    |                                                                     |
                    +--- longer than patience_s: slow, not waited for       run_ended() <-+

While every active run that is not slow waits here, nothing more can come: the batch starts, and its
shape is a function of the step alone. Without active runs a batch starts with what is there.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from trinity.common.ports import Completion, GenerationRequest, RunKey

__all__ = ["Gate", "Waiting", "Work"]

_RunId = tuple[str, int, int] | int  # an int: a run that began and has not asked yet
_LINGER_S = 0.002  # without active runs: requests that are sent in one go become one batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """A request with the future that its caller holds."""

    request: GenerationRequest
    future: Future[list[Completion]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What the engine's thread does next: the jobs, then the requests in order of their keys."""

    jobs: list[Callable[[], None]] = field(default_factory=list)
    requests: list[Waiting] = field(default_factory=list)


class Gate:
    """The queue in front of an engine; many threads put in, one takes out.

    Args:
        patience_s: a run that sends nothing for longer is slow; a batch starts without it.
    """

    def __init__(self, *, patience_s: float = 1.0) -> None:
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._waiting: list[Waiting] = []
        self._jobs: list[Callable[[], None]] = []
        self._active = 0
        self._begun = 0
        self._away: dict[_RunId, float] = {}  # since when
        self._last_arrival = 0.0
        self._is_closed = False

    def submit(self, waiting: Waiting) -> None:
        """Queue a request.

        Raises:
            ModelError: the gate is closed.
        """
        with self._changed:
            self._check_open()
            self._come_back(_run_of(waiting.request.key))
            self._waiting.append(waiting)
            self._last_arrival = time.monotonic()
            self._changed.notify_all()

    def post(self, job: Callable[[], None]) -> None:
        """Queue something to be done before the next batch.

        Raises:
            ModelError: the gate is closed.
        """
        with self._changed:
            self._check_open()
            self._jobs.append(job)
            self._changed.notify_all()

    def run_began(self) -> None:
        """Count one more run, away until its first request."""
        with self._changed:
            self._active += 1
            self._begun += 1
            self._away[self._begun] = time.monotonic()

    def run_ended(self) -> None:
        """Count one run less."""
        with self._changed:
            self._active = max(0, self._active - 1)
            self._forget_surplus()
            self._changed.notify_all()

    def answered(self, keys: Iterable[RunKey]) -> None:
        """Note that these requests have their answer: their runs are away from now on."""
        with self._changed:
            still_waiting = self._waiting_runs()
            for run in sorted({_run_of(key) for key in keys} - still_waiting):
                self._away[run] = time.monotonic()
            self._forget_surplus()
            self._changed.notify_all()

    def take(self) -> Work | None:
        """Return what to do next, waiting until there is something; None: the gate is closed."""
        with self._changed:
            while not self._is_closed:
                delay = 0.0 if self._jobs else self._delay(time.monotonic())
                if delay == 0.0:
                    return self._handed_out()
                self._changed.wait(delay)
            return None

    def close(self) -> list[Waiting]:
        """Refuse what comes, and return what was waiting."""
        with self._changed:
            self._is_closed = True
            left, self._waiting = self._waiting, []
            jobs, self._jobs = self._jobs, []
            self._changed.notify_all()
        for job in jobs:
            job()
        return left

    @property
    def is_closed(self) -> bool:
        """Return whether :meth:`close` was called."""
        return self._is_closed

    def _delay(self, now: float) -> float | None:
        """Return in how many seconds the batch may start; None: not before something changes."""
        if not self._waiting:
            return None
        if self._active == 0:
            return max(0.0, self._last_arrival + _LINGER_S - now)
        if self._active <= len(self._waiting_runs()) or not self._away:
            return 0.0
        return max(0.0, max(self._away.values()) + self._patience_s - now)

    def _handed_out(self) -> Work:
        if self._jobs:
            jobs, self._jobs = self._jobs, []
            return Work(jobs=jobs)
        requests, self._waiting = self._waiting, []
        return Work(requests=sorted(requests, key=lambda waiting: waiting.request.key))

    def _come_back(self, run: _RunId) -> None:
        if self._away.pop(run, None) is not None or run in self._waiting_runs():
            return
        unnamed = next((name for name in self._away if isinstance(name, int)), None)
        if unnamed is not None:
            del self._away[unnamed]

    def _forget_surplus(self) -> None:
        """Keep as many away runs as can be: which one of them ended, nobody says."""
        surplus = len(self._away) - max(0, self._active - len(self._waiting_runs()))
        for run in sorted(self._away, key=self._away.__getitem__, reverse=True)[: max(0, surplus)]:
            del self._away[run]

    def _waiting_runs(self) -> set[_RunId]:
        return {_run_of(w.request.key) for w in self._waiting if not w.future.cancelled()}

    def _check_open(self) -> None:
        if self._is_closed:
            raise ModelError("the rollout engine is closed; build a new one to go on generating.")


def _run_of(key: RunKey) -> tuple[str, int, int]:
    return (key.batch, key.task, key.run)
