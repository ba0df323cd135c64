"""How far a run is, as a checkpoint holds it, and the reader of what earlier versions wrote."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from trinity.common.sync_policy import Consume

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.metrics import Metrics
    from trinity.common.sync_policy import SyncPolicy

_MAY_BE_ZERO = ("top_value", "value_before")  # which is a value, unlike None
_OF_STOPPING = ("top_value", "watched_metric", "evaluations_in_vain", "seconds")


@dataclass
class Progress:
    """How far a run is; a checkpoint holds it."""

    explore_steps: int = 0  # that ended; where groups begin one by one: batches of them
    train_steps: int = 0
    weights_version: int = 0  # policy version of the rollouts' weights
    last_sync_step: int = 0  # the explore step after which weights were looked for last
    is_sync_untold: bool = False  # the next sync tells of weights that a restore gave
    tasks_ended_of: int = 0  # explore steps that were asked for when tasks ended early; 0: not
    trained_experiences: int = 0
    evaluated_step: int = -1  # the explore step of the last evaluation,
    evaluated_version: int = -1  # and the policy version of its weights
    first_evaluation: Metrics = field(default_factory=dict)
    evaluation: Metrics = field(default_factory=dict)  # the last
    # Of `trainer.keep_best`: value and train steps of the checkpoints to keep, the best first.
    best: list[tuple[float, int]] = field(default_factory=list)
    best_metric: str = ""
    value_before: float | None = None  # of that metric, before the first train step
    # Of `trainer.early_stopping`.
    top_value: float | None = None  # None: nothing was evaluated
    watched_metric: str = ""
    evaluations_in_vain: int = 0  # since that value
    seconds: float = 0.0  # that the loop ran, in all starts

    def __post_init__(self) -> None:
        """Make pairs of the lists that json gives."""
        self.best = [(float(value), int(step)) for value, step in self.best]

    def note_evaluation(self, metrics: Metrics) -> None:
        """Remember how the model did that the engines have now."""
        self.evaluated_step, self.evaluated_version = self.explore_steps, self.weights_version
        self.evaluation = metrics
        self.first_evaluation = self.first_evaluation or metrics

    def note_restored(self) -> None:
        """Remember that the engines got the trainer's weights without a sync of the loop."""
        self.is_sync_untold |= self.weights_version < self.train_steps
        self.weights_version = self.train_steps

    @property
    def is_evaluated(self) -> bool:
        """Return whether the model that the engines have now was evaluated."""
        now = self.explore_steps, self.weights_version
        return (self.evaluated_step, self.evaluated_version) == now

    def state_dict(self) -> dict[str, Any]:
        """Return it as json can hold it; without what the run was not asked for."""
        optional = ("is_sync_untold", "best", "best_metric", "value_before", *_OF_STOPPING)
        kept = [name for name in _MAY_BE_ZERO if getattr(self, name) is not None]
        return {k: v for k, v in asdict(self).items() if k not in optional or v or k in kept}


def read_progress(state: Mapping[str, Any], policy: SyncPolicy | None = None) -> Progress:
    """Return how far the run of a checkpoint was, also of one that an earlier version wrote.

    Args:
        state: of the checkpoint, as it was written.
        policy: of the run that goes on; None: only the numbers of steps are wanted.

    >>> old = {"explored": 3, "trained": 2, "pulled": 1, "synced": 2, "num_due": 0, "written": [4]}
    >>> now = read_progress({"progress": old | {"evaluated": -1}, "explorer": {}})
    >>> now.explore_steps, now.weights_version
    (3, 1)
    """
    progress = dict(state["progress"])
    if "explored" not in progress:
        return _of_known(progress)
    if "flight" in state["explorer"] and _num_waiting(progress):
        progress["explored"] -= 1  # its batch was taken and not trained: it is taken again
    if policy is not None and policy.in_rounds and progress["num_due"]:
        due = progress["explored"] - len(progress["written"])  # its round is not over
        progress["synced"] = min(progress["synced"], policy.sync_before(due))
    names = {
        "explored": "explore_steps",
        "trained": "train_steps",
        "pulled": "weights_version",
        "synced": "last_sync_step",
        "evaluated": "evaluated_step",
        "evaluated_trained": "evaluated_version",
    }
    return _of_known({names.get(name, name): value for name, value in progress.items()})


def _of_known(values: Mapping[str, Any]) -> Progress:
    """Return the progress without what another version wrote beside it (Any: json)."""
    known = Progress.__dataclass_fields__
    return Progress(**{name: value for name, value in values.items() if name in known})


def read_rollouts(state: Mapping[str, Any], policy: SyncPolicy) -> dict[str, Any] | None:
    """Return the state of the rollout buffer in a checkpoint; None: it says nothing of it.

    Args:
        state: of the checkpoint, as it was written.
        policy: of the run that goes on.
    """
    explorer, progress = state["explorer"], state["progress"]
    if "rollouts" in explorer:
        rollouts: dict[str, Any] = explorer["rollouts"]
        return rollouts
    if "flight" in explorer:
        return _of_flight(explorer["flight"], is_taken=bool(_num_waiting(progress)))
    return _of_steps(progress, policy) if "explored" in progress else None


def _num_waiting(progress: Mapping[str, Any]) -> int:
    return int(progress.get("num_due", 0)) + sum(progress.get("written", []))


def _of_flight(flight: Mapping[str, Any], *, is_taken: bool) -> dict[str, Any]:
    """Return groups as an earlier version wrote them.

    Args:
        flight: running, waiting and taken groups.
        is_taken: whether the youngest batch that was taken was not trained: it is ready again.
    """
    size, taken = flight["batch_size"], flight["taken"]
    num_again = min(flight["num_taken"] % size or size, len(taken)) if is_taken else 0
    again, over = taken[len(taken) - num_again :], taken[: len(taken) - num_again]
    slots = [
        *([number, "running", 0, 0, task] for number, task in flight["running"]),
        *([number, "ready", version, 1, {}] for number, version in flight["waiting"]),
        *([number, "ready", 0, 1, {}] for number in again),
        *([number, "consumed", 0, 0, {}] for number in over),
    ]
    return {
        "consume": Consume.GROUPS.value,
        "batch": size,
        "max_active": flight["capacity"],
        "window": flight["window"],
        "begun": flight["num_begun"] - 1,
        "num_consumed": flight["num_taken"] - num_again,
        "slots": sorted(slots),
    }


def _of_steps(progress: Mapping[str, Any], policy: SyncPolicy) -> dict[str, Any]:
    """Return rollout steps as an earlier version wrote them: counts of the youngest ones."""
    explored, version = progress["explored"], progress["pulled"]
    counts = [*([progress["num_due"]] if progress["num_due"] else []), *progress["written"]]
    first = explored - len(counts) + 1
    left = {first + place: count for place, count in enumerate(counts)}
    if policy.in_rounds:  # slots are held until the sync, with rows or without
        begin = policy.last_step_of_round(policy.rounds_before(progress["synced"])) + 1
        left = {number: left.get(number, 0) for number in range(min(begin, first), explored + 1)}
    return {
        "consume": policy.consume.value,
        "batch": 0,
        "max_active": policy.max_active,
        "window": policy.window,
        "begun": explored,
        "num_consumed": 0,
        "slots": [[number, "ready", version, count, {}] for number, count in left.items()],
    }
