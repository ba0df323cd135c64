"""How long rollouts, train steps and syncs of a run took, from its metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist, fmean, pstdev
from typing import TYPE_CHECKING

from trinity.errors import ConfigError
from trinity.monitor.jsonl import read_metrics

from trinity_debug.simulated_engines import Seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["RecordedTimes", "recorded_times"]

_RUN = "rollout/time/run_execution"
_ROUNDS = 12  # until the tail that was looked for does not change any more
_POINTS = 2000  # of a quadrature


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedTimes:
    """What a run's parts took.

    Attributes:
        rollout: of a workflow's call, with the tools that it waited for.
        train: of a train step.
        sync: of weights, and whatever of a step is of no side: checkpoints, hooks.
        around: of a rollout step, beside its rollouts: advantages, operators, write.
        step_s: seconds of a step, to compare a simulation with.
        num_steps: that were read.
    """

    rollout: Seconds
    train: Seconds
    sync: Seconds
    around: Seconds
    step_s: float
    num_steps: int


def recorded_times(file: Path, *, requests: int, skip: int = 3) -> RecordedTimes:
    """Return the times of a run.

    Where groups begin one by one no rollout step has a time: nothing is known of what is around
    rollouts, and of what is of no side.

    Args:
        file: ``metrics.jsonl``.
        requests: calls of workflows in a rollout step.
        skip: first steps to leave out, in which all is made.

    Raises:
        ConfigError: it has no times of rollouts, train steps and syncs.
    """
    known_numbers = (
        {name: value for name, value in row.items() if value is not None}  # null: not finite
        for row in read_metrics(file.parent)
    )
    rows = [row for row in known_numbers if row["step"] > skip]
    explored = [row for row in rows if f"{_RUN}/mean" in row]
    trained = [row["time/train_s"] for row in rows if "time/train_s" in row]
    synced = [row for row in rows if {"time/step_s", "time/sync_s"} <= row.keys()]
    if not (explored and trained and synced):
        raise ConfigError(
            f"{file} has no times of rollouts, train steps and syncs after step {skip}. "
            "Record a run of mode both with more steps."
        )
    steps = [row for row in explored if "time/rollout_s" in row]
    sync_s = fmean(row["time/sync_s"] for row in synced)
    step_s = fmean(row["time/step_s"] for row in synced)
    beside_s = sum(row.get("time/trained_beside_s", 0.0) for row in steps) / len(synced)
    known = sum(row["time/rollout_s"] for row in steps) + sum(trained)
    other_s = max(0.0, step_s + beside_s - known / len(synced) - sync_s) if steps else 0.0
    return RecordedTimes(
        rollout=_of_rollouts(explored, requests=requests),
        train=_of(trained),
        sync=Seconds(mean=sync_s + other_s),
        around=Seconds(mean=fmean([_around(row) for row in steps] or [0.0])),
        step_s=step_s,
        num_steps=len(synced),
    )


def _around(row: Mapping[str, float]) -> float:
    """Return the seconds of a rollout step in which no rollout ran."""
    inside = row.get("time/engine_s", 0.0) + row.get("time/workflow_s", 0.0)
    return max(0.0, row["time/rollout_s"] - inside) if inside else 0.0


def _of_rollouts(rows: Sequence[Mapping[str, float]], *, requests: int) -> Seconds:
    """Return seconds whose mean and largest of a step's calls are those of the record."""
    mean = fmean(row[f"{_RUN}/mean"] for row in rows)
    slowest = fmean(row[f"{_RUN}/max"] for row in rows)
    if requests < 2:
        return _of([row[f"{_RUN}/mean"] for row in rows])
    return of_largest(mean, slowest, count=requests)


def _of(numbers: Sequence[float]) -> Seconds:
    """Return seconds of these numbers' mean, whose logarithms scatter as theirs do."""
    sigma = pstdev([math.log(number) for number in numbers]) if min(numbers) > 0.0 else 0.0
    return Seconds(mean=fmean(numbers), sigma=sigma)


def of_largest(mean: float, largest: float, *, count: int) -> Seconds:
    """Return seconds of this mean of which the largest of so many is as given, on average.

    The average of the largest is above ``exp(sigma z)`` of the largest's average ``z``.

    >>> round(of_largest(2.0, 5.11, count=32).sigma, 2)  # the largest of 32 with 0.5, by drawing
    0.5
    """
    found = Seconds(mean=mean)
    for _ in range(_ROUNDS):
        largest_z = _log_of_largest(count, found.sigma or 1.0)
        found = Seconds.of_slowest(mean, largest, z=largest_z)
    return found


def _log_of_largest(count: int, sigma: float) -> float:
    """Return the z for which exp(sigma z) is the average of the largest of so many.

    >>> round(_log_of_largest(100, 1e-6), 2)  # the average of the largest of 100 normal numbers
    2.51
    """
    normal = NormalDist()
    quantiles = (((n + 0.5) / _POINTS) ** (1.0 / count) for n in range(_POINTS))
    return math.log(fmean(math.exp(sigma * normal.inv_cdf(q)) for q in quantiles)) / sigma
