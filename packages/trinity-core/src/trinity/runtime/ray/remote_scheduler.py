"""Let other processes run the orders of a step: one an engine, one message each way.

orders --task % n--> runner 0: PackedOrders ---> PackedResults --+
                     runner 1: ...                               +--> results

What a runner was to make whose process or engine is lost, the others make: ``shared_run.py``.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from trinity.errors import RoomLostError
from trinity.explorer.packing import PackedOrders
from trinity.runtime.ray.remote_groups import RemoteGroupRuns
from trinity.runtime.ray.returning import Callee, Patience, Returning
from trinity.runtime.ray.shared_run import SharedRun

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from trinity.explorer.order import RunOrder, RunReport
    from trinity.explorer.packing import PackedResults

__all__ = ["RemoteScheduler"]

PROBE_S = 0.5  # so often one that is missed is asked whether it is back


class RemoteScheduler:
    """Runs orders in the rooms of the runners.

    A runner whose process dies gets its orders again once another took its place: the runs are the
    same, and so are their samples.

    Args:
        runners: one for each engine; a task's runs go to one of them.
        patience: with a process that dies.
    """

    def __init__(self, runners: Sequence[Callee], *, patience: Patience | None = None) -> None:
        self._runners = [_Runner(room, patience=patience) for room in runners]
        self._pool = ThreadPoolExecutor(4 * len(runners), "trinity-runner-calls")
        self._patience = patience
        self._groups: RemoteGroupRuns | None = None  # None: no group began by itself

    @property
    def num_hung(self) -> int:
        """Return how many threads were left behind and still run."""
        in_flight = self._groups.num_hung if self._groups is not None else 0
        return in_flight + sum(runner.num_hung for runner in self._runners)

    @property
    def busy_s(self) -> float:
        """Return how many seconds the engines have spent on generating."""
        in_flight = self._groups.busy_s if self._groups is not None else 0.0
        return in_flight + sum(runner.busy_s for runner in self._runners)

    def run(self, orders: Sequence[RunOrder]) -> list[RunReport]:
        """Return how each order ended, in the order of the orders.

        Raises:
            RunFailedError: a run failed and ``explorer.on_failed_run`` is fail.
            RoomLostError: the process of a runner ended, and no other took its place.
            TrinityError: an error that concerns all runs.
        """
        if len(self._runners) == 1:
            return self._runners[0].run(orders)
        return SharedRun(self._runners, orders, pool=self._pool).run()

    def begin(self, name: Hashable, orders: Sequence[RunOrder]) -> None:
        """Run these on the engine that has the fewest groups; :meth:`ended` tells how they ended.

        Args:
            name: what they are called; no other group ever has it.
            orders: of one task.
        """
        if self._groups is None:
            rooms = [runner.room for runner in self._runners]
            self._groups = RemoteGroupRuns(rooms, patience=self._patience)
        self._groups.begin(name, orders)

    def ended(self, timeout_s: float) -> list[tuple[Hashable, list[RunReport]]]:
        """Return the groups that ended, and how; none where none did in time.

        Raises:
            RunFailedError: a run failed and ``explorer.on_failed_run`` is fail.
            RoomLostError: the process of a runner ended, and no other took its place.
            TrinityError: an error that concerns all runs.
        """
        assert self._groups is not None
        return self._groups.ended(timeout_s)

    def cut(self, name: Hashable) -> None:
        """Wait no longer for what has not ended of a group; it may have to be said again."""
        if self._groups is not None:
            self._groups.cut(name)

    def where(self, name: Hashable) -> str:
        """Return which engine answers a group."""
        return self._groups.where(name) if self._groups is not None else "no engine"

    def moved(self) -> list[Hashable]:
        """Return the groups that began again elsewhere since this was asked last."""
        return self._groups.moved() if self._groups is not None else []

    def stop(self) -> None:
        """Ask for no more ends."""
        if self._groups is not None:
            self._groups.stop()

    def close(self) -> None:
        """End the threads; the runners' rooms are closed by who started them."""
        self.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Runner:
    """One runner's room."""

    def __init__(self, room: Callee, *, patience: Patience | None) -> None:
        self.room = room
        self._returning = Returning(room, patience=patience)
        self._session = uuid.uuid4().hex
        self.num_hung = 0
        self.busy_s = 0.0
        self.is_missed = False
        self.patience = patience or Patience()
        self.call = ""  # that is made now

    @property
    def engine(self) -> str:
        return self.room.name.replace("runner", "engine")

    def run(self, orders: Sequence[RunOrder]) -> list[RunReport]:
        """Return how each order ended; a process that is lost is waited for."""
        packed = PackedOrders.of(orders)
        try:
            answer: PackedResults = self.room.call("run", self._session, packed)
        except RoomLostError as error:
            answer = self._run_again(packed, error)
        return self._noted(answer, orders)

    def make(self, orders: Sequence[RunOrder]) -> list[RunReport]:
        """Return the same, or raise that the process is lost."""
        self.call, packed = uuid.uuid4().hex, PackedOrders.of(orders)
        answer: PackedResults = self.room.call("run", self._session, packed, self.call)
        return self._noted(answer, orders)

    def look(self) -> float:
        """Return for how long its engine is lost; one that is there is missed no longer."""
        if self.is_missed:
            time.sleep(PROBE_S)
        away_s: float = self.room.call("engine_away_s")
        self.is_missed &= away_s > 0
        return away_s

    def cut(self, call: str) -> None:
        """Let a call end; one that comes later is not meant."""
        with suppress(RoomLostError):
            self.room.call("cut_run", call)

    def _noted(self, answer: PackedResults, orders: Sequence[RunOrder]) -> list[RunReport]:
        self._returning.is_well()
        self.num_hung, self.busy_s = answer.num_hung, self.busy_s + answer.busy_s
        return answer.unpacked(orders)

    def stop(self) -> None:
        with suppress(RoomLostError):
            self.room.call("stop")

    def _run_again(self, packed: PackedOrders, error: RoomLostError) -> PackedResults:
        while True:
            self._returning.lost(error)
            try:
                self._returning.first_answer("stop")  # whoever is back answers
                answer: PackedResults = self.room.call("run", self._session, packed)
            except RoomLostError as another:
                error = another
            else:
                return answer
