"""The rollouts of one engine, in a process of their own, as a dispatcher asks for them.

Dispatcher                          RolloutWorker
begin([(7, requests), ...]) --------> a scheduler over one engine
ended(2 s) -----------------------> [(7, results), ...], and whether the engine is lost
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.sync_policy import policy_of
from trinity.errors import WorkerLostError
from trinity.explorer.packing import PackedRequests, PackedResults
from trinity.explorer.requests import workflow_info
from trinity.explorer.scheduler_builder import build_scheduler
from trinity.extend import get_manager
from trinity.runtime.assembly import make_endpoints
from trinity.runtime.auxiliary import make_auxiliary_models
from trinity.runtime.ray.engine_worker import VISIBLE_GPUS
from trinity.runtime.ray.remote_engine import RemoteEngine
from trinity.runtime.ray.worker_handle import find_worker
from trinity.runtime.supervisor import Recovery, RestartPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.explorer.requests import RolloutResult
    from trinity.runtime.ray.worker import WorkerContext
    from trinity.runtime.ray.worker_handle import WorkerHandle

_Name = tuple[str, int]  # of what the scheduler runs: the session, and the request's number


class RolloutWorker:
    """Holds a scheduler over one engine.

    Args:
        context: of the worker.
        namespace: of the run.
        engine: the name of the engine's worker.
    """

    def __init__(self, context: WorkerContext, *, namespace: str, engine: str) -> None:
        config = context.config
        self._name = context.name
        self._lock = threading.Lock()  # guards the following
        self._session = ""  # of the dispatcher that is served
        self._ended: list[tuple[int, PackedResults]] = []  # of this session, and not told yet
        self._busy_s = 0.0  # that was told of
        self._find = lru_cache(maxsize=64)(workflow_info)
        worker = find_worker(namespace, engine)
        policy = RestartPolicy.of_rollout_worker(sync_timeout=config.synchronizer.sync_timeout)
        if any(not one.external_model_config.enable for one in config.explorer.auxiliary_models):
            _use_gpus_of(worker, policy=policy)  # before anything here has looked for one
        self._engine = RemoteEngine(
            worker,
            policy=policy,
            in_lockstep=not policy_of(config).in_groups,
            has_others=config.explorer.rollout_model.engine_num > 1,
        )
        endpoints = make_endpoints(config, get_manager(), number=int(engine.rpartition("-")[2]))
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

    def open(self, session: str) -> None:
        """Begin a session; what an earlier one left running is left behind.

        Args:
            session: names the dispatcher's conversation with this process.
        """
        with self._lock:
            self._scheduler.reset()
            self._engine.forget()
            self._session, self._ended = session, []

    def begin(self, session: str, requests: Sequence[tuple[int, PackedRequests]]) -> None:
        """Run these, each with its number, as soon as there are slots.

        Nobody waits for this call: what keeps them from beginning is raised by :meth:`ended`.
        """
        with self._lock:
            if session != self._session:
                return  # `ended` tells it
            self._engine.expect_new_weights()
            try:
                self._scheduler.begin_all(
                    [
                        ((session, number), packed.unpacked(self._find))
                        for number, packed in requests
                    ]
                )
            except BaseException as error:  # noqa: BLE001 -- raised by `ended`
                self._scheduler.stop(error)

    def ended(
        self, session: str, timeout_s: float, *, for_all: bool = False
    ) -> tuple[list[tuple[int, PackedResults]], float]:
        """Return the requests that ended, and for how long the engine is lost; 0: it is there.

        Args:
            session: of the dispatcher.
            timeout_s: how long to wait for a first one, in seconds.
            for_all: wait as long for all that began.

        Raises:
            WorkerLostError: the session is another's, or of a process that ended before this one.
            RunFailedError: a run failed and ``explorer.on_failed_run`` is fail.
            TrinityError: an error that concerns all runs.
        """
        self._check(session)
        done = self._scheduler.ended(0.0 if self._ended else timeout_s, for_all=for_all)
        with self._lock:
            # A call of an earlier session may get what ended in this one: the next call tells it.
            for (owner, number), results in cast("list[tuple[_Name, list[RolloutResult]]]", done):
                if owner == self._session:
                    self._ended.append((number, self._packed(results)))
            self._check(session)
            ended, self._ended = self._ended, []
        return ended, self._engine.away_s()

    def cut(self, session: str, numbers: Sequence[int]) -> None:
        """Wait no longer for what has not ended of these requests."""
        with self._lock:
            if session == self._session:
                for number in numbers:
                    self._scheduler.cut((session, number))

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._scheduler.close)
            stack.callback(self._engine.close)
            stack.callback(self._scheduler.stop)

    def _packed(self, results: Sequence[RolloutResult]) -> PackedResults:
        before_s, self._busy_s = self._busy_s, self._engine.busy_s
        return PackedResults.of(
            results, busy_s=self._busy_s - before_s, num_hung=self._scheduler.num_hung
        )

    def _check(self, session: str) -> None:
        if session != self._session:
            raise WorkerLostError(self._name, cause="it was started anew")


def _use_gpus_of(engine: WorkerHandle, *, policy: RestartPolicy) -> None:
    """Let auxiliary models be on the GPUs of this runner's engine, once that is there.

    Ray gives a runner none, and hides none from it: those of all runners would be on the machine's
    first one, whoever has it.
    """
    gpus = Recovery(engine, policy=policy).wait_until_ready("gpus")
    if gpus is not None:
        os.environ[VISIBLE_GPUS] = gpus
