"""The orders of a step in several runners: what one that is lost was to make, others make.

    orders --Shares--> runner 0: one call -----------------+--> results, each once
                       runner 1: one call --lost--+        |
                                  what had ended -)--------+
                                                  +--> runner 0, once its own are made

Of a runner whose process is lost others make all at once. One whose engine is lost keeps its runs,
which go on where they were once the engine is back; after a minute its call is ended, and others
make what has not. They begin once that call has ended: a thread of a run that is in the middle of
something else than a question goes on until that returns, and nobody hears of it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, wait
from typing import TYPE_CHECKING, Protocol

from trinity.errors import RoomLostError
from trinity.explorer.groups import is_cut
from trinity.runtime.ray.shares import Shares
from trinity.runtime.ray.watch import LOOK_S

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from concurrent.futures import Executor, Future

    from trinity.explorer.order import RunOrder, RunReport
    from trinity.runtime.ray.returning import Patience

__all__ = ["SharedRun", "SharingRunner"]

PAUSE_S = 0.1
CUT_S = 30.0  # for a call to end that is to; then others begin what it was to make

logger = logging.getLogger(__name__)


class SharingRunner(Protocol):
    """One of several runners.

    Attributes:
        is_missed: whether it or its engine was lost when it was asked last.
    """

    is_missed: bool

    @property
    def engine(self) -> str:
        """Return the name of its engine."""

    @property
    def patience(self) -> Patience:
        """Return how long it is waited for, and how often it may be lost."""

    def make(self, orders: Sequence[RunOrder]) -> list[RunReport]:
        """Return how each order ended."""

    def look(self) -> float:
        """Return for how long its engine is lost; one that is there is missed no longer."""

    @property
    def call(self) -> str:
        """Return the name of the call that is made now."""

    def cut(self, call: str) -> None:
        """Let a call end; what has not ended is told as a run that was cut."""

    def stop(self) -> None:
        """Let it make no more of what it makes."""


class SharedRun:
    """One step's orders.

    Args:
        runners: at least two.
        orders: of the step.
        pool: makes the calls; it has two threads for each runner, and more for calls that are left.
    """

    def __init__(
        self, runners: Sequence[SharingRunner], orders: Sequence[RunOrder], *, pool: Executor
    ) -> None:
        self._runners, self._orders, self._pool = runners, orders, pool
        self._shares = Shares([order.key.task for order in orders], num_runners=len(runners))
        self._results: dict[int, RunReport] = {}
        self._calls: dict[Future[list[RunReport]], tuple[int, list[int]]] = {}
        self._looks: dict[Future[float], int] = {}
        self._looked = time.monotonic()
        self._away: set[int] = set()  # whose engine was lost when they were asked last
        self._cut: dict[int, float] = {}  # whose call is to end, and since when
        self._gone: set[int] = set()  # that do not come back
        self._losses: Counter[int] = Counter()  # of runners that made a task, by the task
        self._error: RoomLostError | None = None  # the last loss of a runner's process
        self._alone_since: float | None = None  # nobody is there; None: somebody is

    def run(self) -> list[RunReport]:
        """Return how each order ended, in their order.

        Raises:
            RoomLostError: all runners are lost, and none came back.
            Exception: what a runner failed by; the others are stopped.
        """
        for number, runner in enumerate(self._runners):
            if runner.is_missed:
                self._shares.lost(number)
        try:
            while not self._shares.are_made:
                self._begin()
                self._wait()
                self._note_what_ended()
                self._ask()
        except BaseException:
            self._stop()
            raise
        return [self._results[place] for place in range(len(self._orders))]

    def _begin(self) -> None:
        """Give all that are there, and make nothing, what they are to make."""
        calling = {number for number, _ in self._calls.values()}
        makes_some = any(map(self._shares.is_busy, calling))
        there = [n for n, runner in enumerate(self._runners) if not runner.is_missed]
        free = [number for number in there if number not in calling]
        for place, number in enumerate(free):
            places = self._shares.begin(number, num_free=len(free) - place)
            if places:
                orders = [self._orders[place] for place in places]
                call = self._pool.submit(self._runners[number].make, orders)
                self._calls[call] = number, places
        self._check_somebody_comes_back(is_alone=not (there or makes_some))

    def _wait(self) -> None:
        going_on = [*self._calls, *self._looks]
        if going_on:
            wait(going_on, timeout=LOOK_S, return_when=FIRST_COMPLETED)
        else:  # all are lost, and were asked a moment ago
            time.sleep(PAUSE_S)

    def _stop(self) -> None:
        for number, _ in self._calls.values():
            if self._shares.is_busy(number):
                self._runners[number].stop()

    def _note_what_ended(self) -> None:
        for call in [call for call in self._calls if call.done()]:
            self._note_end(call)
        for look in [look for look in self._looks if look.done()]:
            self._note_look(look)

    def _note_end(self, call: Future[list[RunReport]]) -> None:
        number, places = self._calls.pop(call)
        is_own = self._shares.is_busy(number)  # else others make what it was to make
        was_cut = self._cut.pop(number, None) is not None
        error = call.exception(0)
        if error is None:
            reports = dict(zip(places, call.result(0), strict=True))
            left = {place for place, report in reports.items() if was_cut and is_cut(report)}
            for place in reports.keys() - left:
                self._results.setdefault(place, reports[place])
            if is_own:
                self._note_left(number, left)
                self._shares.ended(number, left=left)
            else:
                self._shares.made(reports.keys() - left)
        elif is_own:
            if not isinstance(error, RoomLostError):
                raise error
            self._note_loss(number, error)
            self._lose(number)

    def _note_loss(self, number: int, error: RoomLostError) -> None:
        """Note that a runner's process is lost.

        Raises:
            RoomLostError: no runner comes back.
        """
        self._error = error
        if error.is_final:
            self._gone.add(number)
        if len(self._gone) == len(self._runners):
            raise error

    def _ask(self) -> None:
        """Ask who is missed, and now and then who makes something, whether it is there."""
        now = time.monotonic()
        is_time = now - self._looked > LOOK_S
        self._looked = now if is_time else self._looked
        asked = set(self._looks.values())
        for number, runner in enumerate(self._runners):
            is_asked = is_time and (self._shares.is_busy(number) or number in self._away)
            if number not in asked and (runner.is_missed or is_asked):
                self._looks[self._pool.submit(runner.look)] = number
        for number, since in list(self._cut.items()):
            if now - since > CUT_S and self._shares.is_busy(number):
                self._lose(number)

    def _note_look(self, look: Future[float]) -> None:
        number = self._looks.pop(look)
        if look.exception(0) is not None:  # the call that waits for it tells how
            return
        runner, away_s = self._runners[number], look.result(0)
        self._away = self._away | {number} if away_s else self._away - {number}
        others = self._away | {number}
        has_other = any(not r.is_missed and n not in others for n, r in enumerate(self._runners))
        if away_s > runner.patience.move_s and self._shares.is_busy(number) and has_other:
            self._cut.setdefault(number, time.monotonic())
            self._pool.submit(runner.cut, runner.call)

    def _has_other(self, number: int) -> bool:
        return any(not one.is_missed for n, one in enumerate(self._runners) if n != number)

    def _lose(self, number: int) -> None:
        """Leave all that a runner makes to the others."""
        self._note_left(number, self._shares.lost(number))

    def _note_left(self, number: int, left: Collection[int]) -> None:
        """Note what a runner leaves to others.

        Raises:
            RoomLostError: too many were lost while they made the same task.
        """
        if not left:
            return
        runner = self._runners[number]
        runner.is_missed = True
        tasks = {self._orders[place].key.task for place in left}
        self._losses.update(tasks)
        task, most = max(((one, self._losses[one]) for one in tasks), key=lambda pair: pair[1])
        if most > runner.patience.num_losses:
            cause = f"it is number {most} in turn that is while it makes task {task} of its step"
            raise RoomLostError(runner.engine, cause=cause, is_final=True) from self._error
        if self._has_other(number):
            logger.warning(
                "%s is lost: other engines make its %d runs of this step that had not ended",
                runner.engine, len(left),
            )  # fmt: skip

    def _check_somebody_comes_back(self, *, is_alone: bool) -> None:
        if not is_alone:
            self._alone_since = None
            return
        now = time.monotonic()
        self._alone_since = now if self._alone_since is None else self._alone_since
        patience_s = max(runner.patience.return_s for runner in self._runners)
        if now - self._alone_since > patience_s:
            names = ", ".join(runner.engine for runner in self._runners)
            raise RoomLostError(
                names, cause=f"none was back in {patience_s:.0f} s"
            ) from self._error
