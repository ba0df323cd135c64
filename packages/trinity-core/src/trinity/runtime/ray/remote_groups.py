"""Groups that run in other processes, each by itself: begun at any time, heard of when they end.

begin(group) --------> runner with the fewest groups: RunnerRoom.begin
ended() <---- queue <---- a thread for each runner: RunnerRoom.ended, again and again
"""

from __future__ import annotations

import queue
import threading
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
        self._runners = [_Runner(room, self._ends, patience=patience) for room in rooms]

    @property
    def num_hung(self) -> int:
        """Return how many threads were left behind and still run."""
        return sum(runner.num_hung for runner in self._runners)

    @property
    def busy_s(self) -> float:
        """Return how many seconds the engines have spent on generating."""
        return sum(runner.busy_s for runner in self._runners)

    def begin(self, name: Hashable, orders: Sequence[RunOrder]) -> None:
        """Run the orders of a group."""
        min(self._runners, key=lambda runner: runner.num_open).begin(name, orders)

    def ended(self, timeout_s: float) -> list[tuple[Hashable, list[RunReport]]]:
        """Return the groups that ended; none where none did in time.

        Raises:
            Exception: what a runner failed by.
        """
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
    ) -> None:
        self._room = room
        self._ends = ends
        self._returning = Returning(room, patience=patience)
        self._session = uuid.uuid4().hex
        self._changed = threading.Condition()  # guards the following
        self._groups: dict[Hashable, Sequence[RunOrder]] = {}
        self._is_open = self._is_stopped = False
        self._thread: threading.Thread | None = None
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
                except RoomLostError as error:
                    self._is_open = False
                    self._returning.lost(error)
        except BaseException as error:  # noqa: BLE001 -- raised by whoever asks for the ends
            self._ends.put(error)

    def _has_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._groups or self._is_stopped)
            return not self._is_stopped

    def _open(self) -> None:
        """Give the room all groups that have not ended, if it does not have them."""
        if self._is_open:
            return
        self._returning.first_answer("open", self._session, is_wanted=lambda: not self._is_stopped)
        with self._changed:
            self._is_open = True
            packed = [(name, PackedOrders.of(orders)) for name, orders in self._groups.items()]
        self._room.call("begin", self._session, packed)

    def _listen(self) -> None:
        for name, answer in self._room.call("ended", self._session, POLL_S):
            self._returning.is_well()
            with self._changed:
                orders = self._groups.pop(name)
                self.num_hung, self.busy_s = answer.num_hung, self.busy_s + answer.busy_s
            self._ends.put(_End(name, answer.unpacked(orders)))
