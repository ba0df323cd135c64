"""What a run of this configuration could gain, told from the steps of the one before it.

in turns   | explore                | train | sync |
at once    | explore                | sync |
           | train |
                     ^ the last runs of a step: slots stand empty, unless groups are in flight
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from trinity.common.sync_policy import policy_of
from trinity.errors import TrinityError
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.record.step_times import step_times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.config import Config
    from trinity.runtime.record.rundir import RunDir
    from trinity.runtime.record.step_times import StepTimes

_TOLD_ABOVE = 0.05  # of a step that waits for its slowest runs


def overlap_lines(config: Config, rundir: RunDir) -> list[str]:
    """Return what was measured last time and what could be saved of it; empty: nothing to say.

    Args:
        config: a resolved configuration.
        rundir: of its run, or of its stage.
    """
    if config.mode != "both" or not policy_of(config).in_rounds:
        return []
    try:
        rows = read_metrics(rundir.monitor)
    except TrinityError as error:
        return [f"the metrics of the last run cannot be read: {error}"]
    times = step_times(rows)
    if times is None or not times.step_s or not {"explore", "train"} <= times.sides.keys():
        return []
    slow_s = slow_runs_s(config, [row for row in rows if row["role"] == "explorer"])
    return [_measured(times), _at_once(times), *_slow(slow_s, times=times)]


def slow_runs_s(config: Config, rows: Sequence[Mapping[str, float]]) -> float:
    """Return the seconds of a mean explore step that full slots would not have taken.

    Args:
        config: a resolved configuration.
        rows: the explorer's metrics.
    """
    num_runs = config.buffer.batch_size * (config.algorithm.repeat_times or 1)
    engines = config.explorer.rollout_model.engine_num
    num_slots = min(num_runs, config.explorer.runner_per_model * engines)
    lost = [
        row["time/engine_s"] + row["time/workflow_s"] - num_runs * mean_s / num_slots
        for row in rows
        if (mean_s := row.get("rollout/time/run_execution/mean")) is not None
        and {"time/engine_s", "time/workflow_s"} <= row.keys()
    ]
    return max(0.0, fmean(lost)) if lost else 0.0


def _measured(times: StepTimes) -> str:
    sides = ", ".join(f"{side} {_seconds(spent_s)}" for side, spent_s in times.sides.items())
    return f"last time a step took {_seconds(times.step_s)}: {sides}"


def _at_once(times: StepTimes) -> str:
    most = min(times.sides["explore"], times.sides["train"]) / (times.step_s + times.beside_s)
    if times.beside_s:
        saved = times.beside_s / (times.step_s + times.beside_s)
        return f"training beside exploring saved {saved:.0%} of a step; at most {most:.0%} can be"
    return (
        f"training beside exploring saves at most {most:.0%} of that (over Ray, with a "
        f"sync_offset of 1 or more, or a sync_interval of 2 or more)"
    )


def _slow(slow_s: float, *, times: StepTimes) -> list[str]:
    if slow_s < _TOLD_ABOVE * times.step_s:
        return []
    return [
        f"waiting for the slowest runs cost {_seconds(slow_s)} of it: with sync_style fully_async "
        f"other groups go on meanwhile"
    ]


def _seconds(spent_s: float) -> str:
    return f"{spent_s:.1f} s" if spent_s >= 1 else f"{spent_s * 1000:.0f} ms"
