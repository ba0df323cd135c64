"""The lockstep barrier: decides when the waiting requests may join the batch.

    run_began() -> away --submit()--> waiting --take()--> being answered --answered()--> away
                    |                                                                     |
                    +--- longer than patience_s: slow, not waited for       run_ended() <-+

The first request of a rollout waits until every active rollout that is not slow waits here and none
of the first requests handed out before is being answered: nothing more can come, so the requests
that join together are a function of the step. A later request of a rollout, a retry, and a request
without active rollouts may join at once. A free barrier lets every request join at once.

A request whose structure is being compiled waits here, in its place, until the compilation ends.
Its rollout is neither away nor slow, and no request of an active rollout joins before it, so the
time of a compilation decides nothing. At a free barrier it alone waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from trinity.common.generation.requests import fail
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from trinity.common.generation.structure import Compiled
    from trinity.common.ports import Completion, GenerationRequest, RunKey

PATIENCE_S = 10.0  # more than a busy machine takes to start the first judge of a run
_LATER_PATIENCE_S = 1.0  # once a batch began without a rollout: equal numbers are lost already
_LINGER_S = 0.002  # an idle engine waits so long for what is sent in one go
_SLOW = "another run of this seed may round otherwise (slow environment, or a busy machine)"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class QueuedRequest:
    """A request with the future that its caller holds."""

    request: GenerationRequest
    future: Future[list[Completion]]
    compiling: Future[Compiled] | None = None  # its structure; None: any text

    @property
    def compiled(self) -> Compiled | None:
        """Return its structure, of a request that was handed out; None: any text."""
        return None if self.compiling is None else self.compiling.result()


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What the engine's thread does next: the jobs, or the requests in order of their keys."""

    jobs: list[Callable[[], None]] = field(default_factory=list)
    requests: list[QueuedRequest] = field(default_factory=list)


class LockstepBarrier:
    """The queue in front of an engine; many threads put in, one takes out.

    Args:
        patience_s: a run that sends nothing for longer is slow; a batch starts without it. Once one
            did, nobody is waited for longer than a second.
        is_free: whether nobody waits for anybody.
    """

    def __init__(self, *, patience_s: float = PATIENCE_S, is_free: bool = False) -> None:
        self._is_free = is_free
        self._changed = threading.Condition()
        self._runs = ActiveRollouts(patience_s=patience_s)
        self._first: list[QueuedRequest] = []  # first requests: until the gate opens
        self._opened: list[QueuedRequest] = []  # first requests that it opened for, in order
        self._free: list[QueuedRequest] = []  # may join at once
        self._compiling: dict[QueuedRequest, bool] = {}  # of first and free; whether it is of first
        self._jobs: list[Callable[[], None]] = []
        self._urgent: list[Callable[[], None]] = []  # done between two steps
        self._last_arrival = 0.0
        self._has_cancelled = self._is_closed = self._has_warned = False

    def submit(self, waiting: QueuedRequest) -> None:
        """Queue a request.

        Raises:
            ModelError: the gate is closed, or the structure is bad.
        """
        key, now = waiting.request.key, time.monotonic()
        compiling = waiting.compiling
        with self._changed:
            self._check_open()
            is_compiling = compiling is not None and not compiling.done()
            if compiling is not None and not is_compiling:
                compiling.result()
            is_free = self._is_free or not (is_first(key) and self._runs.num_active)
            (self._free if is_free else self._first).append(waiting)
            if is_compiling:
                self._compiling[waiting] = not is_free
            self._runs.came(key)
            self._last_arrival = now
            if len(self._free) + len(self._first) == 1 or self._runs.is_complete:
                self._changed.notify_all()
        if compiling is not None and is_compiling:
            compiling.add_done_callback(partial(self._compiled, waiting))

    def post(self, job: Callable[[], None], *, is_urgent: bool = False) -> None:
        """Queue something to be done once no request is being answered; none joins before it.

        Args:
            job: it.
            is_urgent: it is done before the next step, whatever is being answered.

        Raises:
            ModelError: the gate is closed.
        """
        with self._changed:
            self._check_open()
            (self._urgent if is_urgent else self._jobs).append(job)
            self._changed.notify_all()

    def run_began(self, key: RunKey) -> None:
        """Note an active run, away until its first request."""
        with self._changed:
            self._runs.began(key, now=time.monotonic())

    def run_ended(self, key: RunKey) -> None:
        with self._changed:
            self._runs.ended(key)
            if self._first or self._opened or self._compiling:
                self._changed.notify_all()

    def answered(self, keys: Iterable[RunKey]) -> None:
        """Note that these requests have their answer: their runs are away from now on."""
        with self._changed:
            self._runs.left(keys, now=time.monotonic())

    def cancelled(self) -> None:
        """Forget the waiting requests whose futures were cancelled."""
        with self._changed:
            waiting = (*self._first, *self._opened, *self._free)
            self._forget([w for w in waiting if w.future.done()])
            self._has_cancelled = True
            self._changed.notify_all()

    def take_cancelled(self) -> bool:
        """Return whether :meth:`cancelled` was called since this was last asked."""
        was_called, self._has_cancelled = self._has_cancelled, False
        return was_called

    def take(self) -> Work | None:
        """Return what to do next, waiting until there is something; None: the gate is closed.

        For an engine that answers nothing at the moment.
        """
        with self._changed:
            while not self._is_closed:
                jobs = [*self._urgent, *self._jobs]
                delay = 0.0 if jobs else self._delay(time.monotonic())
                if delay == 0.0:
                    self._urgent, self._jobs = [], []
                    return Work(jobs=jobs) if jobs else Work(requests=self._handed_out())
                self._changed.wait(delay)
            return None

    def take_joining(self) -> list[QueuedRequest]:
        """Return the requests that may join what is being answered, without waiting for any."""
        if self._jobs or not (self._free or self._first or self._opened):
            return []
        with self._changed:
            return self._handed_out()

    @property
    def num_waiting(self) -> int:
        with self._changed:
            return len(self._first) + len(self._opened) + len(self._free)

    @property
    def has_jobs(self) -> bool:
        return bool(self._jobs)

    @property
    def has_urgent(self) -> bool:
        return bool(self._urgent)

    def take_urgent(self) -> list[Callable[[], None]]:
        """Return the jobs that are to be done before the next step."""
        with self._changed:
            urgent, self._urgent = self._urgent, []
        return urgent

    def close(self) -> list[QueuedRequest]:
        """Refuse what comes, and return what was waiting."""
        with self._changed:
            self._is_closed = True
            left = [*self._opened, *self._first, *self._free]
            self._opened, self._first, self._free, self._compiling = [], [], [], {}
            jobs = [*self._urgent, *self._jobs]
            self._urgent, self._jobs = [], []
            self._changed.notify_all()
        for job in jobs:
            job()
        return left

    @property
    def is_closed(self) -> bool:
        """Return whether :meth:`close` was called."""
        return self._is_closed

    def _delay(self, now: float) -> float | None:
        """Return in how many seconds something may join; None: not before something changes."""
        if self._opened and not self._runs.num_answering:
            return 0.0
        may_open = self._first and not self._opened and not self._is_held
        first = self._runs.delay(now) if may_open else None
        free = max(0.0, self._last_arrival + _LINGER_S - now) if self._joining else None
        return min((delay for delay in (first, free) if delay is not None), default=None)

    def _handed_out(self) -> list[QueuedRequest]:
        may_open = self._first and not self._opened and not self._is_held
        if may_open and self._runs.delay(time.monotonic()) == 0.0:
            self._opened, self._first = sorted(self._first, key=_key), []
            if not (self._has_warned or self._runs.is_complete):
                self._has_warned = True
                self._runs.patience_s = min(self._runs.patience_s, _LATER_PATIENCE_S)
                logger.warning(
                    "a batch began without a rollout that asked nothing for long: %s", _SLOW
                )
        free = self._joining
        taken = set(free)
        self._free = [waiting for waiting in self._free if waiting not in taken]
        first = [] if self._runs.num_answering else self._next_of_one_batch()
        self._runs.handed_out(first=[w.request.key for w in first])
        return sorted([*free, *first], key=_key)

    @property
    def _is_held(self) -> bool:
        """Return whether active runs wait for a structure."""
        return not self._is_free and any(
            is_first or self._runs.is_active(waiting.request.key)
            for waiting, is_first in self._compiling.items()
        )

    @property
    def _joining(self) -> list[QueuedRequest]:
        """Return those of the free requests that may join now."""
        if not self._compiling:
            return self._free
        ready = [waiting for waiting in self._free if waiting not in self._compiling]
        if self._is_held:
            return [w for w in ready if not self._runs.is_active(w.request.key)]
        return ready

    def _compiled(self, waiting: QueuedRequest, compiling: Future[Compiled]) -> None:
        """Note that a structure is compiled, or tell who waits why it is not."""
        error = compiling.exception()
        with self._changed:
            if waiting not in self._compiling:
                return  # it was given up, or the gate was closed
            del self._compiling[waiting]
            if error is not None:
                self._forget([waiting])
            self._changed.notify_all()
        if error is not None:
            fail(waiting.future, error)

    def _forget(self, gone: Sequence[QueuedRequest]) -> None:
        dead = set(gone)
        for queue in (self._first, self._opened, self._free):
            queue[:] = [waiting for waiting in queue if waiting not in dead]
        for waiting in dead:
            self._compiling.pop(waiting, None)
        self._runs.left((waiting.request.key for waiting in gone), now=time.monotonic())

    def _next_of_one_batch(self) -> list[QueuedRequest]:
        """Return the opened requests of one step or evaluation; others wait for them to end."""
        for _, group in groupby(self._opened, key=lambda waiting: waiting.request.key.batch):
            first = list(group)
            self._opened = self._opened[len(first) :]
            return first
        return []

    def _check_open(self) -> None:
        if self._is_closed:
            raise ModelError("the rollout engine is closed; build a new one to go on generating.")


def _key(waiting: QueuedRequest) -> RunKey:
    return waiting.request.key


_RunId = tuple[str, int, int]


class ActiveRollouts:
    """The runs that began and have not ended.

    Args:
        patience_s: a run that is away for longer is slow.
    """

    def __init__(self, *, patience_s: float) -> None:
        self.patience_s = patience_s
        self._active: Counter[_RunId] = Counter()  # how often each began and did not end
        self._here: Counter[_RunId] = Counter()  # requests of each run: waiting or being answered
        self._beyond_first: set[_RunId] = set()  # active, and nobody waits for them any more
        self._away: dict[_RunId, float] = {}  # active, and since when
        self._answering: Counter[RunKey] = Counter()  # first requests handed out

    @property
    def num_active(self) -> int:
        return len(self._active)

    @property
    def num_answering(self) -> int:
        """Return how many first requests are being answered."""
        return len(self._answering)

    @property
    def is_complete(self) -> bool:
        return not self._away

    def is_active(self, key: RunKey) -> bool:
        return _run_of(key) in self._active

    def began(self, key: RunKey, *, now: float) -> None:
        """Note an active run, away until it asks."""
        run = _run_of(key)
        self._active[run] += 1
        if run not in self._here:
            self._away[run] = now

    def ended(self, key: RunKey) -> None:
        """Note that a run is over; nothing happens to one that did not begin."""
        run = _run_of(key)
        self._active[run] -= 1
        if self._active[run] <= 0:
            del self._active[run]
            self._away.pop(run, None)
            self._beyond_first.discard(run)

    def came(self, key: RunKey) -> None:
        """Note a request."""
        run = _run_of(key)
        self._away.pop(run, None)
        self._here[run] += 1
        if run in self._active and not is_first(key):
            self._beyond_first.add(run)

    def handed_out(self, *, first: Sequence[RunKey]) -> None:
        """Note that first requests are being answered."""
        self._answering.update(first)

    def left(self, keys: Iterable[RunKey], *, now: float) -> None:
        """Note that requests were answered or given up."""
        keys = list(keys)
        self._answering -= Counter(keys)  # keeps what is left of it
        for key in keys:
            run = _run_of(key)
            self._here[run] -= 1
            if self._here[run] <= 0:
                del self._here[run]
                if run in self._active and run not in self._beyond_first:
                    self._away[run] = now

    def delay(self, now: float) -> float | None:
        """Return in how many seconds nobody is waited for; None: not before something changes."""
        if self._answering:
            return None
        if not self._away:
            return 0.0
        return max(0.0, max(self._away.values()) + self.patience_s - now)


def is_first(key: RunKey) -> bool:
    return key.request == 0 and key.attempt == 1


def _run_of(key: RunKey) -> _RunId:
    return (key.batch, key.task, key.run)
