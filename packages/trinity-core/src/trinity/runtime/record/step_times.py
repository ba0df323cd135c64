"""Where the time of a step goes: the seconds that each room noted, by side.

    |<---------------------------- step ---------------------------->|
    | explore: engines, workflows, advantages, write | train ... | sync |

Where the sides overlap, what was trained beside the explore step is in both and counted once.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# side, the metric of the whole side, and what of it which room spends
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
            ("trainer", "time/reference_s", "reference: a second model's log-probabilities"),
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Mean seconds a step of one thing that a room does."""

    side: str
    room: str
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
    parts: Sequence[Part]
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
) -> list[Part]:
    parts = []
    left_s = whole_s
    for room, metric, what in members:
        seconds = _a_step(rows, metric, num_steps) if metric else max(0.0, left_s)
        left_s -= seconds
        if seconds:
            parts.append(Part(side=side, room=room, what=what, seconds=seconds))
    return parts


def _a_step(rows: Iterable[Mapping[str, float]], metric: str, num_steps: int) -> float:
    """Return the seconds a step: several train steps may belong to one."""
    return sum(row.get(metric) or 0.0 for row in rows) / num_steps
