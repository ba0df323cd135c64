"""Where the time of a step goes, and what a run could gain by overlapping its sides.

    in turns   | explore: engines, workflows, advantages, write | train ... | sync |
    at once    | explore                                        | sync |
               | train |
                                ^ the last runs of a step: slots stand empty

Where the sides overlap, what was trained beside the explore step is in both and counted once.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from trinity.common.sync_policy import policy_of
from trinity.errors import TrinityError
from trinity.monitor.jsonl import read_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trinity.common.config import Config
    from trinity.runtime.record.rundir import RunDir

# side, the metric of the whole side, and what of it which worker spends
_SIDES = (
    (
        "explore",
        "explorer",
        "time/rollout_s",
        (
            ("engines", "time/engine_s", "the model's forwards and sampling"),
            ("runners", "time/workflow_s", "workflows: prompts, tools, rewards"),
            ("explorer", "time/advantage_s", "advantages: groups compared"),
            ("buffer", "time/write_s", "write"),
            ("explorer", "", "rest: rollouts to disk, operators, waiting"),
        ),
    ),
    (
        "train",
        "trainer",
        "time/train_s",
        (
            ("buffer", "time/sample_s", "sample: out of the buffer"),
            ("trainer", "time/rollout_correction_s", "rollout correction: the policy asked again"),
            ("trainer", "time/reference_s", "reference: its log-probabilities"),
            ("trainer", "time/policy_s", "log-probabilities: the policy asked again"),
            ("trainer", "time/entropy_s", "entropies: the policy asked again"),
            ("trainer", "time/advantage_s", "advantages: a batch compared"),
            ("trainer", "time/critic_s", "critic: values, and its own step"),
            ("trainer", "time/forward_backward_s", "forward, backward: model and losses"),
            ("trainer", "time/optimizer_s", "optimizer"),
            ("trainer", "", "rest: the batch, metrics, samples"),
        ),
    ),
    ("sync", "synchronizer", "time/sync_s", (("synchronizer", "time/sync_s", "weights"),)),
)
_STEP, _BESIDE, _EVALUATION = "time/step_s", "time/trained_beside_s", "time/eval_s"
_TOLD_ABOVE = 0.05  # of a step that waits for its slowest runs


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedPart:
    """Mean seconds a step of one thing that a worker does."""

    side: str
    worker: str
    what: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """Where the mean step of a run goes.

    Attributes:
        num_steps: that the mean is of.
        step_s: seconds of the whole step.
        sides: seconds of each side by its name.
        parts: of each side, those that took any time.
        beside_s: seconds that were trained while the next step was explored.
        other_s: of the step, and of no side: checkpoints, hooks, waiting for each other.
        evaluation_s: seconds of each evaluation, which no step counts; 0: there was none.
    """

    num_steps: int
    step_s: float
    sides: Mapping[str, float]
    parts: Sequence[TimedPart]
    beside_s: float
    other_s: float
    evaluation_s: float


def step_times(rows: Iterable[Mapping[str, float]], *, skip: int = 3) -> StepTimes | None:
    """Return where the time of a run's steps went; None: no step after the first ``skip``.

    Args:
        rows: of ``metrics.jsonl``.
        skip: first steps to leave out, in which all is made.
    """
    by_role: dict[str, dict[float, dict[str, float]]] = {}
    evaluations = []
    for row in rows:
        if _EVALUATION in row:
            evaluations.append(row[_EVALUATION])
        elif row["step"] > skip:
            _add(row, to=by_role.setdefault(str(row["role"]), {}).setdefault(row["step"], {}))
    steps = [row[_STEP] for row in by_role.get("synchronizer", {}).values() if _STEP in row]
    num_steps = len(steps) or max(map(len, by_role.values()), default=0)
    if not num_steps:
        return None
    parts, sides = [], {}
    for side, role, whole, members in _SIDES:
        own = list(by_role.get(role, {}).values())
        if not any(whole in row for row in own):
            continue
        sides[side] = _a_step(own, whole, num_steps)
        parts += _parts(side, own, members, whole_s=sides[side], num_steps=num_steps)
    beside_s = _a_step(by_role.get("explorer", {}).values(), _BESIDE, num_steps)
    known = sum(sides.values()) - beside_s
    step_s = fmean(steps) if steps else known
    return StepTimes(
        num_steps=num_steps,
        step_s=step_s,
        sides=sides,
        parts=parts,
        beside_s=beside_s,
        other_s=max(0.0, step_s - known),
        evaluation_s=fmean(evaluations) if evaluations else 0.0,
    )


def _add(row: Mapping[str, float], *, to: dict[str, float]) -> None:
    """Add a row to those of its step before it: weights may move several times in one."""
    spent = {name: value for name, value in row.items() if name in {_STEP, "time/sync_s"}}
    to |= dict(row) | {name: (value or 0.0) + to.get(name, 0.0) for name, value in spent.items()}


def _parts(
    side: str,
    rows: Sequence[Mapping[str, float]],
    members: Sequence[tuple[str, str, str]],
    *,
    whole_s: float,
    num_steps: int,
) -> list[TimedPart]:
    parts = []
    left_s = whole_s
    for worker, metric, what in members:
        seconds = _a_step(rows, metric, num_steps) if metric else max(0.0, left_s)
        left_s -= seconds
        if seconds:
            parts.append(TimedPart(side=side, worker=worker, what=what, seconds=seconds))
    return parts


def _a_step(rows: Iterable[Mapping[str, float]], metric: str, num_steps: int) -> float:
    """Return the seconds a step: several train steps may belong to one."""
    return sum(row.get(metric) or 0.0 for row in rows) / num_steps


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
