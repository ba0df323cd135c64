"""``explorer``: how tasks are run."""

from __future__ import annotations

from typing import Annotated, Literal

from trinity.common.config.base import (
    Lowercase,
    StrictModel,
    core,
    machine,
    not_yet,
    other,
    section,
)
from trinity.common.config.inference_model import InferenceModelConfig

__all__ = ["DynamicTimeoutConfig", "ExplorerConfig", "OverRolloutConfig"]

_RAY, _SERVE = "runs on Ray", "mode serve"
_ASYNC = "sync style fully_async"
_AHEAD = "sync styles other than fixed"


class OverRolloutConfig(StrictModel):
    """``explorer.over_rollout``: go on before the slowest tasks are done."""

    ratio: float = other(
        0.0, "part of a batch's tasks that need not be waited for", used_by=_ASYNC, ge=0, lt=1
    )
    wait_after_min: float = core(30.0, "seconds of grace for them", switch="ratio", ge=0)
    return_partial_tasks: bool = core(
        False, "keep the runs that ended of a task that is cut, if two or more", switch="ratio"
    )


class DynamicTimeoutConfig(StrictModel):
    """``explorer.dynamic_timeout``: a timeout that follows how long tasks take."""

    enable: bool = other(False, "use it", used_by=_ASYNC)
    warmup_min_steps: int = core(1, "batches to measure first", switch="enable", ge=1)
    ratio: float = core(3.0, "times the mean time of a task", switch="enable", gt=0)


class ExplorerConfig(StrictModel):
    """``explorer``: how tasks are run, and by what."""

    name: str = core("explorer", "name of the explorer")
    runner_per_model: int = machine(8, "runs at the same time for each engine", ge=1)
    runner_prepare_concurrency: int = other(8, "runners started at once", used_by=_RAY, ge=1)
    runner_prepare_max_retries: int = other(2, "attempts to start one", used_by=_RAY, ge=0)
    max_timeout: float = core(1800, "seconds that a task may take", gt=0)
    max_retry_times: int = core(
        2, "further attempts after a run failed, unless it can never succeed", ge=0
    )
    env_vars: dict[str, str] = core({}, "environment variables of the runners")
    concurrent_mode: Annotated[
        Literal["sequential", "asynchronous", "multi-threading"], Lowercase
    ] = core(
        "sequential",
        "how one runner makes the runs of one task: one after the other; at once, where the "
        "workflow awaits; at once, each in a thread",
    )
    max_repeat_times_per_runner: int | None = core(
        None, "most runs of one task that one runner makes; None: the whole group", ge=1
    )
    runner_num: int | None = other(None, "older form of runner_per_model", used_by="older versions")
    rollout_model: InferenceModelConfig = section(
        InferenceModelConfig, "the engine of the trained model"
    )
    auxiliary_models: list[InferenceModelConfig] = core(
        [], "further models (judges, teachers), in the process of the workflows; never trained"
    )
    eval_interval: int = core(100, "explore steps between evaluations; 0: none", ge=0)
    eval_on_startup: bool = core(True, "evaluate the untrained model too")
    bench_on_latest_checkpoint: bool = core(
        False, "mode bench: only the last checkpoint instead of all"
    )
    proxy_port: int = other(
        8010, "port of the service; 0: a free one", used_by=_SERVE, ge=0, le=65535
    )
    listen_address: str = core(
        "127.0.0.1", "address that the HTTP endpoints of runs, or the service, listen at"
    )
    service_status_check_interval: int = other(
        60, "seconds between checks", used_by="older versions"
    )
    min_running_model_num: int = other(1, "engines that stay up in an update", used_by=_SERVE, ge=0)
    db_url: str | None = other(
        None,
        "SQLite file of the exchanges; default: buffer/serve.db in the run directory",
        used_by=_SERVE,
    )
    keep_runs_s: float = other(
        604800.0,
        "seconds after its last call or reward that a run of a service which is over stays in that "
        "file; what every checkpoint was trained on goes earlier, what is rewarded and not trained "
        "stays",
        used_by=_SERVE,
        gt=0,
    )
    over_rollout: OverRolloutConfig = section(OverRolloutConfig, "do not wait for the slowest")
    dynamic_timeout: DynamicTimeoutConfig = section(DynamicTimeoutConfig, "a timeout that adapts")
    runner_state_report_interval: int = not_yet(
        0, "seconds between reports on what runners do; 0: none", ge=0
    )
    max_inflight_batches: int = other(
        2,
        "batches of groups that are on their way or wait to be trained; of other styles than "
        "fully_async: explore steps, over Ray",
        used_by=_AHEAD,
        ge=1,
    )
    window: float = other(
        0.3,
        "part of the groups in flight that may be overtaken; 0: they are trained in strict order",
        used_by=_ASYNC,
        ge=0,
        le=1,
    )
    max_failed_ratio: float = core(
        0.5,
        "part of the runs of the last `buffer.batch_size` tasks that may fail before the run stops "
        "with an error",
        ge=0,
        le=1,
    )
    on_failed_run: Annotated[Literal["drop", "fail"], Lowercase] = core(
        "drop", "drop a failed run (and its group if fewer than two remain), or stop"
    )
