"""Build the workers that a stage's mode needs, each found by its registered name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.explorer.scheduler_builder import build_scheduler
from trinity.extend.kinds import KINDS
from trinity.runtime.assembly import make_endpoints, make_engine, make_sync, make_trainer
from trinity.runtime.auxiliary import make_auxiliary_models
from trinity.runtime.error_context import boundary
from trinity.runtime.gc_paused import gc_paused
from trinity.runtime.parts import Parts, RunInfo
from trinity.runtime.record.samples import SampleLog
from trinity.runtime.stage_builder import StageBuilder

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.common.ports import RunMode, SyncMethod, Trainer
    from trinity.explorer.scheduler import Scheduler
    from trinity.extend import PluginManager
    from trinity.runtime.display import Display
    from trinity.runtime.interrupt import Interrupt
    from trinity.runtime.record.rundir import RunDir


def build_parts(
    config: Config,
    *,
    rundir: RunDir,
    manager: PluginManager,
    display: Display,
    interrupt: Interrupt,
    stage: str = "",
) -> Parts:
    """Return the workers of one resolved stage, all in this process.

    Raises:
        TrinityError: a model, a dataset or a component cannot be loaded.
    """
    parts = Parts(
        config=config,
        rundir=rundir,
        info=RunInfo(directory=rundir.path, config=config, stage=stage),
        manager=manager,
        display=display,
        interrupt=interrupt,
    )
    try:
        with boundary("the start of the run"), gc_paused():
            _Builder(parts).build()
    except BaseException:
        parts.close()
        raise
    return parts


class _Builder(StageBuilder):
    def build(self) -> None:
        parts = self._parts
        self._format = ChatFormat.from_config(self._config.model)
        own_mode = self._own_mode()
        super().build()
        if own_mode is not None:
            own_mode.add_workers(self._format)
        parts.connect()

    def _own_mode(self) -> RunMode | None:
        if not self._config.is_plugin_mode:
            return None
        cls = self._manager.load("run_mode", self._config.mode)
        made: RunMode = KINDS["run_mode"].made(cls, {}, parts=self._parts)
        return made

    def _chat_format(self) -> ChatFormat:
        return self._format

    def _make_trainer(self, *, total_steps: int) -> Trainer:
        parts, config = self._parts, self._config
        trainer = make_trainer(config, self._manager, total_steps=total_steps)
        samples = SampleLog.of(config, self._manager, trainer=trainer, rundir=parts.rundir)
        if samples is not None:
            parts.observers.append(samples)
        return trainer

    def _make_scheduler(self) -> Scheduler:
        parts, config = self._parts, self._config
        shared = self._shared_module()
        parts.engines = self._engines = engines = [
            make_engine(config, self._manager, module=shared)
            for _ in range(config.explorer.rollout_model.engine_num)
        ]
        endpoints = make_endpoints(config, self._manager)
        model = ModelWrapper(
            engines[0],
            self._format,
            config.explorer.rollout_model,
            model=config.model,
            endpoints=endpoints,
        )
        return build_scheduler(
            config,
            engines=engines,
            model=model,
            auxiliary_models=make_auxiliary_models(config, self._manager, endpoints=endpoints),
            endpoints=endpoints,
        )

    def _make_sync(self) -> SyncMethod:
        return make_sync(self._config, self._manager, engines=self._engines)

    def _shared_module(self) -> Any:
        """Return the trainer's own module where an engine may use it unseen, else None."""
        trainer = self._parts.trainer
        policy, rollout = self._parts.policy, self._config.explorer.rollout_model
        may_share = (
            trainer is not None
            and not self._config.model.lora_configs  # engines know no adapters
            and not self._config.trainer.param_offload  # they answer while weights are away
            and policy.is_always_newest  # else rollouts see weights that move
            and rollout.engine_num == 1
            # With another precision the trainer keeps float32 weights under autocast.
            and rollout.dtype == self._config.trainer.precision == "float32"
        )
        return trainer.module if may_share else None
