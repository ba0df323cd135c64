"""Build what runs rollout requests: a runner for each engine, and their scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.ports import RunKey
from trinity.explorer.event_loop import EventLoopThread
from trinity.explorer.requests import RolloutLimits
from trinity.explorer.runner import Runner, recording_of
from trinity.explorer.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.config import Config
    from trinity.common.models.model import ModelWrapper
    from trinity.common.ports import EndpointOpener, RolloutEngine


def build_scheduler(
    config: Config,
    *,
    engines: Sequence[RolloutEngine],
    names: Sequence[str] = (),
    model: ModelWrapper,
    auxiliary_models: Sequence[Any] = (),
    endpoints: EndpointOpener | None = None,
) -> Scheduler:
    """Return a scheduler over these engines.

    Args:
        config: a resolved configuration.
        engines: copies of one model.
        names: of the engines; by default engine-0, engine-1, ...
        model: a wrapper of the first engine; each run gets one of its own.
        auxiliary_models: handed to every workflow.
        endpoints: opens those of the runs; closed with the scheduler.
    """
    loop = EventLoopThread()
    runners = [
        Runner(
            model.for_run(RunKey(), engine=engine),
            auxiliary_models=auxiliary_models,
            loop=loop,
            environments=recording_of if config.buffer.record_samples else lambda _: None,
            engine_name=name,
        )
        for engine, name in zip(
            engines, names or [f"engine-{n}" for n in range(len(engines))], strict=True
        )
    ]
    explorer = config.explorer
    limits = RolloutLimits(
        num_slots=explorer.runner_per_model,
        timeout_s=explorer.max_timeout,
        max_attempts=explorer.max_retry_times + 1,
        can_fail=explorer.on_failed_run == "drop",
        mode=explorer.concurrent_mode,
        max_at_once=explorer.max_repeat_times_per_runner,
    )
    return Scheduler(runners, engines=engines, loop=loop, limits=limits, endpoints=endpoints)
