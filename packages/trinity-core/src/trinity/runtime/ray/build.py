"""Start the workers of a stage that stand in processes of their own, beside the driver.

driver: pipeline, tasks, explorer's logic,     trainer, or trainer-0 .. trainer-n
|       buffer, weights, monitors              engine-0 .. engine-n   (started again if lost)
+-- calls all of them by their handles         runner-0 .. runner-n   (started again if lost)
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trinity.common.config import probe
from trinity.common.config.synchronizer import LEAST_LOAD_S
from trinity.runtime.determinism import may_overlap
from trinity.runtime.error_context import boundary
from trinity.runtime.parts import Parts, RunInfo
from trinity.runtime.ray.cluster import startup_line
from trinity.runtime.ray.engine_supervisor import EngineSupervisor
from trinity.runtime.ray.gpu_allocation import gpu_shares, short_of, unseen_gpus
from trinity.runtime.ray.placement import (
    Placement,
    await_ended_groups,
    check_machines,
    hosts_of_cluster,
    lack_line,
)
from trinity.runtime.ray.remote_trainer import RemoteTrainer
from trinity.runtime.ray.weight_sync import RemoteEngines, RemoteSync
from trinity.runtime.ray.worker_group import WorkerGroup
from trinity.runtime.ray.worker_spec import WorkerSpec
from trinity.runtime.stage_builder import StageBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.config import Config
    from trinity.common.models.chat_format import ChatFormat
    from trinity.extend import PluginManager
    from trinity.runtime.display import Display
    from trinity.runtime.interrupt import Interrupt
    from trinity.runtime.ray.cluster import Cluster
    from trinity.runtime.ray.dispatcher import Dispatcher
    from trinity.runtime.ray.worker import WorkerFacts
    from trinity.runtime.ray.worker_handle import WorkerHandle
    from trinity.runtime.record.rundir import RunDir

MAX_RESTARTS = 100  # of an engine or a runner; who calls it gives up long before


def build_parts_over_ray(  # noqa: PLR0913 -- as the local build
    config: Config,
    *,
    ground: Cluster,
    rundir: RunDir,
    manager: PluginManager,
    display: Display,
    interrupt: Interrupt,
    stage: str = "",
) -> Parts:
    """Return the workers of one resolved stage, each in a process of its own.

    Each call starts them in a namespace of its own of the Ray ``ground``. ``stage`` is its name,
    empty for a run without stages; ``interrupt`` tells whether the run was asked to stop.

    Raises:
        TrinityError: a model, a dataset or a component cannot be loaded.
    """
    began = time.perf_counter()
    worker_spec = WorkerSpec.of(config, rundir=rundir, manager=manager, namespace=ground.namespace)
    workers = WorkerGroup(worker_spec, timeout_s=config.synchronizer.sync_timeout)
    parts = Parts(
        config=config,
        rundir=rundir,
        info=RunInfo(directory=rundir.path, config=config, stage=stage),
        manager=manager,
        display=display,
        interrupt=interrupt,
        workers=workers,
    )
    try:
        with boundary("the start of the run"):
            builder = _RayBuilder(parts, workers, has_others=not ground.is_own)
            builder.build()
    except BaseException:
        parts.close()
        raise
    display.say(startup_line(ground, builder.facts, seconds=time.perf_counter() - began))
    return parts


class _RayBuilder(StageBuilder):
    def __init__(self, parts: Parts, workers: WorkerGroup, *, has_others: bool) -> None:
        super().__init__(parts)
        self._workers = workers
        namespace = workers.worker_spec.namespace
        await_ended_groups(namespace.partition("/")[0])
        hosts = hosts_of_cluster()
        if said := unseen_gpus(parts.config, hosts=hosts, machine=probe()):
            parts.display.say(said)
        self._shares, groups = gpu_shares(
            parts.config, parts.manager, hosts=hosts, has_others=has_others
        )
        if short_of(groups, hosts=hosts, is_free=True):
            parts.display.say(lack_line(groups, hosts=hosts))
        workers.placement = Placement(groups, namespace=namespace)
        self._engines: list[EngineSupervisor] = []
        self._format = _chat_format(parts.config)
        self.facts: Sequence[WorkerFacts] = ()

    def build(self) -> None:
        super().build()
        parts = self._parts
        self.facts = self._workers.check(parts.manager)
        check_machines(parts.config, parts.manager, facts=self.facts)
        if isinstance(parts.trainer, RemoteTrainer):
            parts.trainer.start_training()
        for engine in self._engines:
            engine.supervise()
        parts.connect()

    def _chat_format(self) -> ChatFormat | None:
        return self._format

    def _make_trainer(self, *, total_steps: int) -> RemoteTrainer:
        num_ranks = self._shares.num_ranks
        workers = [
            self._workers.start(
                f"trainer-{rank}" if num_ranks > 1 else "trainer",
                "trainer_worker:TrainerWorker",
                num_gpus=self._shares.trainer,
                total_steps=total_steps,
                rank=rank,
                num_ranks=num_ranks,
                waits=0 < self._shares.trainer < 1,
            )
            for rank in range(num_ranks)
        ]
        return RemoteTrainer(workers)

    def _make_scheduler(self) -> Dispatcher:
        parts, config = self._parts, self._config
        runners = [
            self._start_engine(number)
            for number in range(max(1, config.explorer.rollout_model.engine_num))
        ]
        trainer: Any = parts.trainer  # Any: of this builder, so it has a sender
        sender = trainer.sender if trainer is not None else None
        self._sync = RemoteSync(config, self._manager, engines=self._engines, sender=sender)
        parts.engines = [RemoteEngines(self._sync)]
        from trinity.runtime.ray.dispatcher import Dispatcher  # brings torch

        return Dispatcher(runners)

    def _make_sync(self) -> RemoteSync:
        parts, config = self._parts, self._config
        if may_overlap(config, self._manager):
            parts.in_turns = False
        parts.engine_weights = self._sync
        return self._sync

    def _start_engine(self, number: int) -> WorkerHandle:
        """Start an engine and its runner; return the runner's worker."""
        engine = self._workers.start(
            f"engine-{number}",
            "engine_worker:EngineWorker",
            num_threads=9,  # one of them in `liveness`
            num_gpus=self._shares.engine,
            max_restarts=MAX_RESTARTS,
            number=number,
        )
        load_s = max(LEAST_LOAD_S, self._config.synchronizer.sync_timeout)
        self._engines.append(EngineSupervisor(engine, load_s=load_s))
        return self._workers.start(
            f"runner-{number}",
            "rollout_worker:RolloutWorker",
            num_threads=4,
            max_restarts=MAX_RESTARTS,
            namespace=self._workers.worker_spec.namespace,
            engine=f"engine-{number}",
        )


def _chat_format(config: Config) -> ChatFormat | None:
    """Return what turns rows into tokens; None for a queue or a ledger, which hold none."""
    given = config.buffer.trainer_input
    buffer = given.experience_buffer
    has_rows = buffer is not None and buffer.storage_type not in {"queue", "sql"}
    if config.mode == "bench" or not (has_rows or given.auxiliary_buffers):
        return None
    from trinity.common.models.chat_format import ChatFormat

    return ChatFormat.from_config(config.model)
