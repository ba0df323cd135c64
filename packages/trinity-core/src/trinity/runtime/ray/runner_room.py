"""The runs of one engine, in a process of their own: orders in, results out."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.explorer.local import build_scheduler
from trinity.explorer.packing import PackedOrders, PackedResults
from trinity.extend import get_manager
from trinity.runtime.auxiliary import make_auxiliary_models
from trinity.runtime.endpoints import make_endpoints
from trinity.runtime.ray.handle import find_room
from trinity.runtime.ray.remote_engine import RemoteEngine

if TYPE_CHECKING:
    from trinity.runtime.ray.room import RoomContext

__all__ = ["RunnerRoom"]

_STOPS_WITHIN_S = 0.5


class RunnerRoom:
    """Holds a scheduler over one engine.

    Args:
        context: of the room.
        namespace: of the run.
        engine: the name of the engine's room.
    """

    def __init__(self, context: RoomContext, *, namespace: str, engine: str) -> None:
        config = context.config
        self._session = ""
        self._turn = threading.Lock()
        self._engine = RemoteEngine(find_room(namespace, engine))
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
            model=model,
            auxiliary_models=make_auxiliary_models(config, get_manager(), endpoints=endpoints),
            endpoints=endpoints,
        )

    def run(self, session: str, packed: PackedOrders) -> PackedResults:
        """Return how each order ended, in their order.

        Args:
            session: of the explorer; what another one left running is stopped.
            packed: the orders.

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
            busy_s = self._engine.busy_s
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
            self._turn.release()

    def stop(self) -> None:
        """Let the call of :meth:`run` that is being made end, if there is one."""
        self._scheduler.stop()

    def close(self) -> None:
        """End the threads and what workflows hold; safe to call twice."""
        with ExitStack() as stack:
            stack.callback(self._scheduler.close)
            stack.callback(self._engine.close)
            stack.callback(self._scheduler.stop)

    def _begin(self, session: str) -> None:
        if session == self._session:
            self._engine.expect_new_weights()
            return
        self._session = session
        self._engine.forget()
