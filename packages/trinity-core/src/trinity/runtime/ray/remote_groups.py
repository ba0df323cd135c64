"""Groups that run in other processes, each by itself: begun at any time, heard of when they end.

begin(group) --------> runner with the fewest groups: RunnerRoom.begin
ended() <---- queue <---- a thread for each runner: RunnerRoom.ended, again and again

Groups of a runner that is lost, or whose engine is, wait for it; after a minute they are made anew
by another one, and it gets no more before it is back. Where there is no other, that is told.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trinity.errors import RoomLostError
from trinity.explorer.packing import PackedOrders
from trinity.runtime.ray.returning import Patience, Returning

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from trinity.explorer.order import RunOrder, RunReport

__all__ = ["RemoteGroupRuns", "RunnerHandle"]

POLL_S = 10.0
PROBE_S = 1.0  # so often a lost runner that has no groups is asked whether it is back
MISSED_S = 1.0  # longer than a runner that is there takes to answer its first call

logger = logging.getLogger(__name__)


class RunnerHandle(Protocol):
    """A runner's room, as :class:`~trinity.runtime.ray.handle.RoomHandle` calls it."""

    name: str

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Return what the method returns (Any: each its own)."""

    def start(self, method: str, /, *args: Any, **kwargs: Any) -> object:
        """Call the method without waiting."""


class RemoteGroupRuns:
    """Knows which runner has which group. A runner that dies gets its groups again.

    Args:
        rooms: of the runners, one for each engine.
        patience: with a process that dies.
    """

    def __init__(self, rooms: Sequence[RunnerHandle], *, patience: Patience | None = None) -> None:
        self._ends: queue.SimpleQueue[_End | BaseException] = queue.SimpleQueue()
        self._move_s = (patience or Patience()).move_s
        self._told: set[str] = set()  # engines that are waited for
        self._moved: list[Hashable] = []  # groups, and not told yet
        self._runners = [
            _Runner(room, self._ends, patience=patience, has_others=len(rooms) > 1)
            for room in rooms
        ]

    @property
    def num_hung(self) -> int:
        """Return how many threads were left behind and still run."""
        return sum(runner.num_hung for runner in self._runners)

    @property
    def busy_s(self) -> float:
        """Return how many seconds the engines have spent on generating."""
        return sum(runner.busy_s for runner in self._runners)

    def begin(self, name: Hashable, orders: Sequence[RunOrder]) -> None:
        """Run the orders of a group: where nobody is missed, if anywhere."""
        chosen = min(self._runners, key=lambda r: (r.is_given_up, r.is_missed, r.num_open))
        chosen.begin(name, orders)

    def ended(self, timeout_s: float) -> list[tuple[Hashable, list[RunReport]]]:
        """Return the groups that ended; none where none did in time.

        Raises:
            Exception: what a runner failed by.
        """
        self._move_lost()
        ends: list[_End | BaseException] = []
        with suppress(queue.Empty):
            ends.append(self._ends.get(timeout=timeout_s))
            while True:
                ends.append(self._ends.get_nowait())
        return [(end.name, end.reports) for end in map(_raised, ends)]

    def cut(self, name: Hashable) -> None:
        """Wait no longer for what has not ended of a group; it may have to be said again."""
        for runner in self._runners:
            if runner.has(name):
                runner.cut(name)

    def where(self, name: Hashable) -> str:
        """Return which engine answers a group."""
        return next((runner.engine for runner in self._runners if runner.has(name)), "no engine")

    def moved(self) -> list[Hashable]:
        """Return the groups that began again elsewhere since this was asked last."""
        moved, self._moved = self._moved, []
        return moved

    def _move_lost(self) -> None:
        """Let others make the groups of those that are lost for too long.

        Raises:
            RoomLostError: all are, for good.
        """
        gone = [runner.gone for runner in self._runners if runner.gone]
        if len(gone) == len(self._runners):
            raise gone[-1]
        lost = [runner for runner in self._runners if runner.away_s() > self._move_s]
        self._told &= {runner.engine for runner in lost}
        there = [r for r in self._runners if r not in lost and not r.is_given_up]
        for runner in lost:
            if runner.is_given_up and not runner.num_open:
                continue
            if there:
                groups = runner.give_up()
                if groups:
                    logger.warning(
                        "%s is lost for %.0f s: other engines make its %d groups anew",
                        runner.engine, runner.away_s(), len(groups),
                    )  # fmt: skip
                for name, orders in groups.items():
                    self.begin(name, orders)
                self._moved += groups
            elif runner.num_open and runner.engine not in self._told:
                self._told.add(runner.engine)
                logger.warning(
                    "%s is lost for %.0f s and there is no other: its %d groups wait for it",
                    runner.engine, runner.away_s(), runner.num_open,
                )  # fmt: skip

    def stop(self) -> None:
        """Ask for no more ends."""
        for runner in self._runners:
            runner.stop()


@dataclass(frozen=True, slots=True)
class _End:
    name: Hashable
    reports: list[RunReport]


def _raised(end: _End | BaseException) -> _End:
    if isinstance(end, BaseException):
        raise end
    return end


class _Runner:
    """One runner's room: CLOSED -> OPEN, and CLOSED again when its process is lost."""

    def __init__(
        self,
        room: RunnerHandle,
        ends: queue.SimpleQueue[_End | BaseException],
        *,
        patience: Patience | None,
        has_others: bool,
    ) -> None:
        self._room = room
        self._ends, self._has_others = ends, has_others
        self._returning = Returning(room, patience=patience)
        self._session = uuid.uuid4().hex
        self._changed = threading.Condition()  # guards the following
        self._groups: dict[Hashable, Sequence[RunOrder]] = {}
        self._heard: list[Hashable] = []  # groups that ended; the room is told so next
        self._is_open = self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._away_since: float | None = None  # None: its process is there
        self._engine_away_s = 0.0  # as it said last
        self.is_given_up = False  # others have its groups
        self.gone: RoomLostError | None = None  # why it does not come back, where others do
        self.num_hung = 0
        self.busy_s = 0.0

    @property
    def engine(self) -> str:
        return self._room.name.replace("runner", "engine")

    @property
    def num_open(self) -> int:
        return len(self._groups)

    def has(self, name: Hashable) -> bool:
        return name in self._groups

    def begin(self, name: Hashable, orders: Sequence[RunOrder]) -> None:
        with self._changed:
            self._groups[name] = orders
            if self._is_open:  # nobody waits: the thread hears if it does not arrive
                self._room.start("begin", self._session, [(name, PackedOrders.of(orders))])
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._follow, name=f"{self._room.name}-ends", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def away_s(self) -> float:
        """Return for how long it or its engine is lost; 0: nobody has missed them."""
        since = self._away_since
        return self._engine_away_s if since is None else time.monotonic() - since

    @property
    def is_missed(self) -> bool:
        """Return whether others had better begin what comes next."""
        return self._engine_away_s > 0 or self.away_s() > MISSED_S

    def give_up(self) -> dict[Hashable, Sequence[RunOrder]]:
        """Return the groups that have not ended; whatever it still does of them is not heard."""
        with self._changed:
            groups, self._groups, self._heard = self._groups, {}, []
            self._session, self._is_open, self.is_given_up = uuid.uuid4().hex, False, True
            self._changed.notify_all()
        return groups

    def cut(self, name: Hashable) -> None:
        with self._changed:
            if self._is_open:  # nobody waits: a runner that dies runs it again
                self._room.start("cut", self._session, [name])

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _follow(self) -> None:
        try:
            while self._has_work():
                try:
                    self._open()
                    self._listen()
                except Exception as error:  # noqa: BLE001 -- raised where it is not a loss
                    self._note_failure(error)
        except BaseException as error:  # noqa: BLE001 -- raised by whoever asks for the ends
            self._ends.put(error)

    def _note_failure(self, error: Exception) -> None:
        """Note a loss; of one whose groups others have, or will have, none ends the run.

        Raises:
            Exception: it was one loss too many, or something else.
        """
        with self._changed:
            is_done_without = self.is_given_up
            if isinstance(error, RoomLostError) and error.is_final and self._has_others:
                self.gone, is_done_without = error, True
            if is_done_without or isinstance(error, RoomLostError):
                self._is_open = False
                self._away_since = self._away_since or time.monotonic()
            if is_done_without and not self._is_stopped:
                self._changed.wait(PROBE_S)
        if is_done_without:
            return
        if not isinstance(error, RoomLostError):
            raise error
        self._returning.lost(error)

    def _has_work(self) -> bool:
        with self._changed:
            while not (self._groups or self._is_stopped or self.is_given_up or self._engine_away_s):
                self._changed.wait(POLL_S)
            return not self._is_stopped

    def _open(self) -> None:
        """Give the room all groups that have not ended, if it does not have them."""
        if self._is_open:
            return
        session = self._session
        self._away_since = self._away_since or time.monotonic()  # until it answers
        self._returning.first_answer("open", session, is_wanted=lambda: not self._is_stopped)
        self._away_since = self.gone = None
        with self._changed:
            if session != self._session:  # given up meanwhile
                return
            self._is_open = True
            packed = [(name, PackedOrders.of(orders)) for name, orders in self._groups.items()]
        self._room.call("begin", session, packed)

    def _listen(self) -> None:
        session = self._session
        if self.is_given_up:
            self._look_whether_it_is_back()
            return
        timeout_s, heard = PROBE_S if self._engine_away_s else POLL_S, list(self._heard)
        ends = self._room.call("ended", session, timeout_s, heard)
        self._heard = []
        for name, answer in ends:
            self._returning.is_well()
            with self._changed:
                if session != self._session:  # given up meanwhile: another one makes it
                    return
                orders = self._groups.pop(name)
                self._heard.append(name)
                self.num_hung, self.busy_s = answer.num_hung, self.busy_s + answer.busy_s
            self._ends.put(_End(name, answer.unpacked(orders)))
        self._engine_away_s = self._room.call("engine_away_s")

    def _look_whether_it_is_back(self) -> None:
        """Take part again once the engine answers."""
        self._engine_away_s = self._room.call("engine_away_s")
        with self._changed:
            if self._is_open and not self._engine_away_s:
                self.is_given_up = False
                self._returning.is_well()
            else:
                self._changed.wait(PROBE_S)
