"""How long rollouts, train steps and syncs of a run took, from its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING

from trinity.errors import ConfigError
from trinity.monitor.jsonl import read_metrics

from trinity_debug.simulated_engines import Seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["RecordedTimes", "recorded_times"]

_RUN = "rollout/time/run_execution"


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
    return Seconds.of_slowest(mean, slowest, z=_z_of_largest(requests))


def _of(numbers: Sequence[float]) -> Seconds:
    """Return seconds of these numbers' mean, whose slowest of as many is their largest."""
    if len(numbers) < 2:
        return Seconds(mean=fmean(numbers))
    return Seconds.of_slowest(fmean(numbers), max(numbers), z=_z_of_largest(len(numbers)))


def _z_of_largest(count: int) -> float:
    """Return where the largest of so many normal numbers lies on average (Blom's formula).

    >>> round(_z_of_largest(100), 2)
    2.5
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
