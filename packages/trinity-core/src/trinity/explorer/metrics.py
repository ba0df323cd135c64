"""The metrics of rollout steps and of evaluations."""

from __future__ import annotations

from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from trinity.explorer.groups import experiences_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trinity.common.metrics import Metrics
    from trinity.explorer.requests import RolloutResult


def counts_of(results: Sequence[RolloutResult]) -> Metrics:
    """Return how many tokens and experiences good runs gave, and how many runs failed."""
    good = [result for result in results if result.failure is None]
    experiences = experiences_of(good)
    num_tokens = sum(int(e.action_mask.sum()) for e in experiences if e.action_mask is not None)
    failed = [result for result in results if result.failure is not None]
    return {
        "rollout/num_tokens": float(num_tokens),
        "rollout/num_experiences": float(len(experiences)),
        "rollout/failed_runs": float(sum(result.request.num_runs for result in failed)),
        "rollout/retried_runs": float(sum(bool(result.retried) for result in results)),
        **_by_outcome(failed, "failed_runs"),
        **_by_outcome([result for result in results if result.retried], "retried_runs"),
    }


def _by_outcome(results: Sequence[RolloutResult], name: str) -> Metrics:
    """Return how many runs met each outcome; of one that was made again, the last before it."""
    counts: Metrics = {}
    for result in results:
        failure = result.failure if name == "failed_runs" else result.retried[-1]
        assert failure is not None
        key = f"rollout/{name}/{failure.outcome.value}"
        counts[key] = counts.get(key, 0.0) + result.request.num_runs
    return counts


_DETAILS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": fmean,
    "std": pstdev,
    "max": max,
    "min": min,
}


def evaluation_metrics(
    results: Sequence[RolloutResult], *, prefix: str, repeat_times: int, is_detailed: bool = False
) -> Metrics:
    """Return the statistics of each metric over the k runs of a task, averaged over the tasks.

    ``mean@k``; with k > 1 also ``std@k`` (of the population), ``best@k`` and ``worst@k``. A failed
    run has no metrics: it is left out and counted in ``failed_runs``. With ``is_detailed`` also
    ``mean``, ``std``, ``max`` and ``min`` over all runs.
    """
    metrics: Metrics = {
        f"{prefix}/failed_runs": float(sum(r.failure is not None for r in results)),
        f"{prefix}/num_tasks": float(len({r.request.key.task for r in results})),
    }
    for name, by_task in _by_metric_and_task(results).items():
        for statistic, value in _statistics(by_task.values(), repeat_times=repeat_times).items():
            metrics[f"{prefix}/{name}/{statistic}@{repeat_times}"] = value
        if is_detailed:
            runs = [value for values in by_task.values() for value in values]
            for label, function in _DETAILS.items():
                metrics[f"{prefix}/{name}/{label}"] = function(runs)
    return metrics


def run_metrics(result: RolloutResult) -> list[dict[str, float]]:
    """Return the metrics of each run of a result: of several steps, the last that names one.

    >>> from trinity.common.experience import Experience
    >>> exps = (Experience(tokens=[1, 2, 3], reward=1.0, metrics={"turns": 4}),)
    >>> from trinity.explorer.requests import RolloutResult
    >>> run_metrics(RolloutResult(request=None, experiences=exps))[0]["turns"]
    4.0
    """
    by_run: dict[int, dict[str, float]] = {}
    for experience in result.experiences:
        row = by_run.setdefault(experience.eid.run, {})
        row |= {name: float(value) for name, value in experience.metrics.items()}
        if experience.reward is not None:
            row["reward"] = float(experience.reward)
        row["response_length"] = float(experience.response_length)
        row["prompt_length"] = float(experience.prompt_length)
        is_cut = experience.truncate_status is not None
        row["truncated"] = max(row.get("truncated", 0.0), float(is_cut))
    for row in by_run.values():
        row["time/run_execution"] = result.duration_s
    return list(by_run.values())


def _by_metric_and_task(results: Iterable[RolloutResult]) -> dict[str, dict[int, list[float]]]:
    collected: dict[str, dict[int, list[float]]] = {}
    for result in results:
        for row in run_metrics(result):
            for name, value in row.items():
                collected.setdefault(name, {}).setdefault(result.request.key.task, []).append(value)
    return collected


def _statistics(tasks: Iterable[Sequence[float]], *, repeat_times: int) -> Mapping[str, float]:
    groups = list(tasks)
    if repeat_times == 1:
        return {"mean": fmean(map(fmean, groups))}
    return {
        "mean": fmean(map(fmean, groups)),
        "std": fmean(map(pstdev, groups)),
        "best": fmean(map(max, groups)),
        "worst": fmean(map(min, groups)),
    }
