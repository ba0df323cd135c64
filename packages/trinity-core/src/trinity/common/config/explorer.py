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

_SERVE = "mode serve"
_ASYNC = "sync style fully_async"
_AHEAD = "sync styles other than fixed"


class OverRolloutConfig(StrictModel):
    """``explorer.over_rollout``: train without the stragglers of a batch."""

    ratio: float = other(
        0.0,
        "fraction of a batch's tasks that the trainer does not wait for",
        used_by=_ASYNC,
        ge=0,
        lt=1,
    )
    wait_after_min: float = core(30.0, "seconds that these tasks still get", switch="ratio", ge=0)
    return_partial_tasks: bool = core(
        False,
        "train the finished rollouts of a task that is cut off, if two or more",
        switch="ratio",
    )


class DynamicTimeoutConfig(StrictModel):
    """``explorer.dynamic_timeout``: a timeout that adapts to the duration of tasks."""

    enable: bool = other(False, "enable it", used_by=_ASYNC)
    warmup_min_steps: int = core(1, "batches to measure before it applies", switch="enable", ge=1)
    ratio: float = core(3.0, "timeout as a multiple of the mean duration", switch="enable", gt=0)


class ExplorerConfig(StrictModel):
    """``explorer``: rollouts: workflows, engines, evaluation."""

    name: str = core("explorer", "name of the explorer")
    runner_per_model: int = machine(8, "concurrent rollouts per engine", ge=1)
    runner_prepare_concurrency: int = other(
        8, "rollout workers started at the same time", used_by="older versions", ge=1
    )
    runner_prepare_max_retries: int = other(
        2, "attempts to start a rollout worker", used_by="older versions", ge=0
    )
    max_timeout: float = core(1800, "timeout of a task, in seconds", gt=0)
    max_retry_times: int = core(2, "retries of a failed rollout, unless it can never succeed", ge=0)
    env_vars: dict[str, str] = core({}, "environment variables of the workers")
    concurrent_mode: Annotated[
        Literal["sequential", "asynchronous", "multi-threading"], Lowercase
    ] = core(
        "sequential",
        "how a rollout worker runs the rollouts of one task: one after the other; concurrently "
        "in asyncio; each in a thread",
    )
    max_repeat_times_per_runner: int | None = core(
        None, "maximum rollouts of one task per rollout worker; None: the whole group", ge=1
    )
    runner_num: int | None = other(None, "older form of runner_per_model", used_by="older versions")
    rollout_model: InferenceModelConfig = section(
        InferenceModelConfig, "the engine of the trained model"
    )
    auxiliary_models: list[InferenceModelConfig] = core(
        [], "further models (judges, teachers), in the rollout worker's process; never trained"
    )
    eval_interval: int = core(
        100, "explore steps between evaluations; 0: only at the start and the end", ge=0
    )
    eval_on_startup: bool = core(True, "evaluate the untrained model too")
    bench_on_latest_checkpoint: bool = core(
        False, "mode bench: evaluate only the last checkpoint instead of all"
    )
    proxy_port: int = other(
        8010, "port of the service; 0: any free port", used_by=_SERVE, ge=0, le=65535
    )
    listen_address: str = core("127.0.0.1", "listen address of HTTP endpoints and of the service")
    service_status_check_interval: int = other(
        60, "seconds between checks", used_by="older versions"
    )
    min_running_model_num: int = other(
        1, "engines that keep serving during a weight sync", used_by=_SERVE, ge=0
    )
    db_url: str | None = other(
        None,
        "SQLite file of the recorded calls; default: buffer/serve.db in the run directory",
        used_by=_SERVE,
    )
    keep_runs_s: float = other(
        604800.0,
        "seconds that the file keeps a finished rollout of a service after its last call or "
        "reward. Rollouts that all checkpoints were trained on are deleted earlier; rewarded "
        "rollouts are kept until they are trained",
        used_by=_SERVE,
        gt=0,
    )
    over_rollout: OverRolloutConfig = section(OverRolloutConfig, "train without stragglers")
    dynamic_timeout: DynamicTimeoutConfig = section(DynamicTimeoutConfig, "an adaptive timeout")
    runner_state_report_interval: int = not_yet(
        0, "seconds between reports of the rollout workers; 0: none", ge=0
    )
    max_inflight_batches: int = other(
        2,
        "slots: how many batches of groups may be active or wait to be trained (bounds the "
        "staleness). Other styles than fully_async: explore steps, over Ray",
        used_by=_AHEAD,
        ge=1,
    )
    window: float = other(
        0.3,
        "fraction of the slots by which a group may overtake a straggler; 0: strict order",
        used_by=_ASYNC,
        ge=0,
        le=1,
    )
    max_failed_ratio: float = core(
        0.5,
        "fraction of the rollouts of the last `buffer.batch_size` tasks that may fail before the "
        "run stops with an error",
        ge=0,
        le=1,
    )
    on_failed_run: Annotated[Literal["drop", "fail"], Lowercase] = core(
        "drop", "drop a failed rollout (and its group if fewer than two remain), or stop the run"
    )
