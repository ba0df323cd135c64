"""The runs of one engine, in a process of their own: orders in, results out."""

from __future__ import annotations

import os
import threading
from concurrent.futures import CancelledError
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.sync_policy import policy_of
from trinity.errors import RoomLostError
from trinity.explorer.local import build_scheduler
from trinity.explorer.packing import PackedOrders, PackedResults
from trinity.extend import get_manager
from trinity.runtime.auxiliary import make_auxiliary_models
from trinity.runtime.endpoints import make_endpoints
from trinity.runtime.ray.engine_room import VISIBLE_GPUS
from trinity.runtime.ray.handle import find_room
from trinity.runtime.ray.remote_engine import RemoteEngine
from trinity.runtime.ray.returning import Patience, Returning

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from trinity.explorer.order import RunReport
    from trinity.runtime.ray.returning import Callee
    from trinity.runtime.ray.room import RoomContext

__all__ = ["RunnerRoom"]

_STOPS_WITHIN_S = 0.5
_Call = tuple[str, Any]  # the session, and the name of a group in it (Any: hashable)


class RunnerRoom:
    """Holds a scheduler over one engine.

    Args:
        context: of the room.
        namespace: of the run.
        engine: the name of the engine's room.
    """

    def __init__(self, context: RoomContext, *, namespace: str, engine: str) -> None:
        config = context.config
        self._name = context.name
        self._session = ""
        self._call = ""  # of `run`, that is made now
        self._begun: set[Hashable] = set()  # groups, in this session
        self._ended: dict[Hashable, PackedResults] = {}  # of them, until they are heard of
        self._error: BaseException | None = None  # a group could not begin
        self._busy_s = 0.0  # that was told of
        self._turn = threading.Lock()
        room = find_room(namespace, engine)
        patience = Patience.of_runner(sync_timeout=config.synchronizer.sync_timeout)
        if any(not one.external_model_config.enable for one in config.explorer.auxiliary_models):
            _use_gpus_of(room, patience=patience)  # before anything here has looked for one
        self._engine = RemoteEngine(
            room,
            patience=patience,
            in_lockstep=not policy_of(config).in_groups,
            has_others=config.explorer.rollout_model.engine_num > 1,
        )
        endpoints = make_endpoints(config, number=int(engine.rpartition("-")[2]))
        model = ModelWrapper(
            self._engine,
            ChatFormat.from_config(config.model),
            config.explorer.rollout_model,
            model=config.model,
            endpoints=endpoints,
        )
        self._scheduler = build_scheduler(
            config,
            engines=[self._engine],
            names=[engine],
            model=model,
            auxiliary_models=make_auxiliary_models(config, get_manager(), endpoints=endpoints),
            endpoints=endpoints,
        )

    def run(self, session: str, packed: PackedOrders, call: str = "") -> PackedResults:
        """Return how each order ended, in their order.

        Args:
            session: of the explorer; what another one left running is stopped.
            packed: the orders.
            call: by which :meth:`cut_run` names this one.

        Raises:
            RunFailedError: a run failed and ``explorer.on_failed_run`` is fail.
            CancelledError: it was stopped, or another call came.
            TrinityError: an error that concerns all runs.
        """
        orders = packed.unpacked()
        self.stop()
        while not self._turn.acquire(timeout=_STOPS_WITHIN_S):
            self.stop()
        try:
            self._begin(session)
            busy_s, self._call = self._engine.busy_s, call
            results = self._scheduler.run(orders)
            return PackedResults.of(
                results,
                busy_s=self._engine.busy_s - busy_s,
                num_hung=self._scheduler.num_hung,
            )
        except BaseException:
            self._session = ""  # what was left behind must not be heard by the next runs
            raise
        finally:
            self._call = ""
            self._turn.release()

    def open(self, session: str) -> None:
        """Let an explorer begin groups; what another one left running is forgotten.

        Args:
            session: of the explorer.
        """
        with self._turn:
            if session != self._session:
                self._begin(session)

    def begin(self, session: str, groups: Sequence[tuple[Hashable, PackedOrders]]) -> None:
        """Run these groups, each with its name, as soon as there are slots.

        One that began already goes on. What keeps a group from beginning is raised by
        :meth:`ended`.
        """
        with self._turn:
            if session != self._session:
                return  # :meth:`ended` tells it
            self._engine.expect_new_weights()
            for name, packed in groups:
                if name in self._begun:
                    continue
                self._begun.add(name)
                try:
                    self._scheduler.begin((session, name), packed.unpacked())
                except BaseException as error:  # noqa: BLE001 -- nobody waits for this call
                    self._error = error
                    self._scheduler.stop()

    def ended(
        self, session: str, timeout_s: float, heard: Sequence[Hashable] = ()
    ) -> list[tuple[Hashable, PackedResults]]:
        """Return the groups whose last run ended; none where none did in time.

        Args:
            session: of the explorer.
            timeout_s: how long to wait for a first one, in seconds.
            heard: names that arrived; others are told again, as an answer may be lost on its way.

        Raises:
            RoomLostError: the session is another's: this process took the place of one that died.
            RunFailedError: a run failed and ``explorer.on_failed_run`` is fail.
            TrinityError: an error that concerns all runs.
        """
        if session != self._session:
            raise RoomLostError(self._name, cause="it was started anew")
        if self._error is not None:
            raise self._error
        for name in heard:
            self._ended.pop(name, None)
        for (owner, name), results in self._scheduled_ends(0.0 if self._ended else timeout_s):
            if owner != self._session:  # of groups that others were given meanwhile
                continue
            busy_s, self._busy_s = self._busy_s, self._engine.busy_s
            spent_s, num_hung = self._busy_s - busy_s, self._scheduler.num_hung
            self._ended[name] = PackedResults.of(results, busy_s=spent_s, num_hung=num_hung)
        return list(self._ended.items()) if session == self._session else []

    def engine_away_s(self) -> float:
        """Return for how long the engine's process is lost; 0: it is there, or nobody knows."""
        return self._engine.away_s()

    def cut(self, session: str, names: Sequence[Hashable]) -> None:
        """Wait no longer for what has not ended of these groups."""
        if session == self._session:
            for name in names:
                self._scheduler.cut((session, name))

    def cut_run(self, call: str) -> None:
        """Let a call of :meth:`run` return what has ended, and the rest as cut; no other one."""
        if call and call == self._call:
            self._scheduler.cut(None)

    def stop(self) -> None:
        """Let the call of :meth:`run` that is being made end, if there is one."""
        self._scheduler.stop()

    def close(self) -> None:
        """End the threads and what workflows hold; safe to call twice."""
        with ExitStack() as stack:
            stack.callback(self._scheduler.close)
            stack.callback(self._engine.close)
            stack.callback(self._scheduler.stop)

    def _scheduled_ends(self, timeout_s: float) -> list[tuple[_Call, list[RunReport]]]:
        try:
            return cast("list[tuple[_Call, list[RunReport]]]", self._scheduler.ended(timeout_s))
        except CancelledError as stopped:  # a group could not begin, or the room is closed
            raise self._error or stopped from None

    def _begin(self, session: str) -> None:
        if session == self._session:
            self._engine.expect_new_weights()
            return
        for name in self._begun:
            self._scheduler.cut((self._session, name))
        self._begun, self._ended = set(), {}
        self._session = session
        self._engine.forget()


def _use_gpus_of(engine: Callee, *, patience: Patience) -> None:
    """Let auxiliary models be on the GPUs of this runner's engine, once that is there.

    Ray gives a runner none, and hides none from it: those of all runners would be on the machine's
    first one, whoever has it.
    """
    gpus = Returning(engine, patience=patience).first_answer("gpus")
    if gpus is not None:
        os.environ[VISIBLE_GPUS] = gpus
