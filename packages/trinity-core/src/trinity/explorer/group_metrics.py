"""The metrics of evaluations, and of groups that begin and end one by one."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from trinity.common.metrics import Metrics, aggregate, deviation, mean, merge
from trinity.explorer.finish import ENGINE
from trinity.explorer.groups import counts_of, experiences_of, is_cut, run_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.explorer.requests import RolloutResult

_NAME = re.compile(r"engine-\d+")


def tokens_by_engine(experiences: Iterable[Experience]) -> dict[str, float]:
    """Return how many tokens each engine sampled; a workflow may have said another ``engine``."""
    tokens: Counter[str] = Counter()
    for experience in experiences:
        name = str(experience.info.get(ENGINE))
        if experience.action_mask is not None and _NAME.fullmatch(name):
            tokens[name] += int(experience.action_mask.sum())
    return {name: float(count) for name, count in tokens.items()}


def versions_of_replies(experiences: Iterable[Experience]) -> list[int]:
    """Return of each how many versions sampled it: above 1 where weights changed between tokens."""
    return [len(experience.info.get("version_spans", ())) or 1 for experience in experiences]


class EngineRates:
    """Counts what engines sample from one step to the next."""

    def __init__(self) -> None:
        self._tokens: dict[str, float] = {}  # since the last step; of all that ever sampled

    def add(self, tokens: Mapping[str, float]) -> None:
        """Count the tokens of a group that ended."""
        for name, count in tokens.items():
            self._tokens[name] = self._tokens.get(name, 0.0) + count

    def of_step(self, seconds: float, *, versions: Sequence[int]) -> Metrics:
        """Return tokens a second by engine, and begin the next step.

        Args:
            seconds: since the last step.
            versions: of the replies that the step takes.
        """
        rates = {f"{name}/tokens_per_s": self._tokens[name] / seconds for name in self._tokens}
        self._tokens = dict.fromkeys(self._tokens, 0.0)
        return rates | ({"versions/per_reply": fmean(versions)} if versions else {})


logger = logging.getLogger(__name__)
PATIENCE_S = 60.0  # with a batch, until it is said what it waits for
_SUMS = ("experience_pipeline/num_", "time/")  # of a step, as what ends so; else means of groups
_COUNT = "_count"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupMetrics:
    """What is known of a group that ended, until a step takes it."""

    rows: list[dict[str, float]]  # of each kept run
    counts: dict[str, float]
    processed: dict[str, float]
    busy_s: float  # of all its runs together
    is_cut: bool = False  # it was not waited for
    num_tokens: dict[str, float] = field(default_factory=dict)  # that were sampled, by engine
    num_versions: list[int] = field(default_factory=list)  # of the weights, in each kept reply

    @classmethod
    def of(
        cls,
        reports: Sequence[RolloutResult],
        kept: Sequence[RolloutResult],
        processed: Mapping[str, float],
    ) -> GroupMetrics:
        """Return those of a group.

        Args:
            reports: of all its runs.
            kept: of those that are trained.
            processed: what the operators said.
        """
        return cls(
            rows=[row for report in kept for row in run_metrics(report)],
            counts=counts_of([report for report in reports if not is_cut(report)]),
            processed=dict(processed),
            busy_s=sum(report.duration_s for report in reports),
            is_cut=any(map(is_cut, reports)),
            num_tokens=tokens_by_engine(experiences_of(reports)),
            num_versions=versions_of_replies(experiences_of(kept)),
        )


@dataclass
class StepMetrics:
    """Collects what happens from one step to the next.

    Args:
        num_slots: how many runs can be on their way at a time.
    """

    num_slots: int
    patience_s: float = PATIENCE_S
    _groups: dict[int, GroupMetrics] = field(default_factory=dict)  # that wait, by number
    _dropped: list[GroupMetrics] = field(default_factory=list)  # since the last step
    _num_forgotten: int = 0  # that were dropped before those
    _taken: dict[int, GroupMetrics] = field(default_factory=dict)  # by the last step
    _began: float = field(default_factory=time.monotonic)  # the last step was taken then
    _step: int = 0  # that somebody waits for
    _waits_since: float = 0.0
    _idle_since: float | None = None  # no group runs; None: some do
    _idle_s: float = 0.0
    _slots_s: float = 0.0  # of groups that ended since the last step
    _busy_s: float = 0.0  # of the engines, at the last step
    _rates: EngineRates = field(default_factory=EngineRates)

    def waits(self, *, for_step: int) -> None:
        """Note that somebody waits for a step's batch."""
        if for_step != self._step:
            self._step, self._waits_since = for_step, time.monotonic()
            self.patience_s = PATIENCE_S

    def waited_s(self) -> float:
        return time.monotonic() - self._waits_since

    def runs(self, *, num_running: int) -> None:
        """Note how many groups are on their way now."""
        now = time.monotonic()
        if not num_running:
            self._idle_since = now
        elif self._idle_since is not None:
            self._idle_s += now - self._idle_since
            self._idle_since = None

    def ended(self, number: int, group: GroupMetrics) -> None:
        """Note a group that waits from now on."""
        self._groups[number] = group
        self._note(group)

    def dropped(self, group: GroupMetrics) -> None:
        """Note a group that left nothing to train on."""
        self._dropped.append(group)
        self._note(group)

    def evaluated(self, seconds: float) -> None:
        """Note for how long all runs of an evaluation together had slots."""
        self._slots_s += seconds

    def forget_dropped(self) -> None:
        """Keep of the groups that were dropped so far their number alone."""
        self._num_forgotten += len(self._dropped)
        self._dropped = []

    def of_step(self, numbers: Iterable[int], *, busy_s: float) -> Metrics:
        """Return the metrics of the groups that a step takes, and begin the next step.

        Args:
            numbers: the groups.
            busy_s: what the engines have spent on generating, in the whole run.
        """
        now = time.monotonic()
        self._taken = {n: self._groups.pop(n) for n in numbers if n in self._groups}
        groups = list(self._taken.values())
        if self._idle_since is not None:
            self._idle_s, self._idle_since = self._idle_s + now - self._idle_since, now
        ended = [*groups, *self._dropped]  # means over what is trained alone would be biased
        room_s = self.num_slots * max(now - self._began, 1e-9)
        num_dropped = float(self._num_forgotten + len(self._dropped))
        rollout_s, waited_s = now - self._began, now - self._waits_since
        metrics = {
            **aggregate([row for group in ended for row in group.rows], prefix="rollout"),
            **_sums([group.counts for group in ended]),
            **_sums([_part(group.processed, is_sum=True) for group in ended]),
            **merge([_part(group.processed, is_sum=False) for group in ended]),
            "rollout/dropped_groups": num_dropped,
            "groups/dropped": num_dropped,
            "groups/cut": float(sum(group.is_cut for group in ended)),
            "idle/slots": min(1.0, max(0.0, 1.0 - self._slots_s / room_s)),
            "time/rollout_s": rollout_s,  # since the last step was taken
            "time/trained_beside_s": max(0.0, rollout_s - waited_s),
            "time/engine_s": busy_s - self._busy_s,
            "time/wait_train_s": waited_s,
            "time/wait_explore_s": self._idle_s,
            **self._rates.of_step(
                max(now - self._began, 1e-9),
                versions=[count for group in groups for count in group.num_versions],
            ),
        }
        self._dropped, self._began, self._idle_s, self._slots_s = [], now, 0.0, 0.0
        self._num_forgotten, self._busy_s = 0, busy_s
        return metrics

    def put_back(self) -> None:
        """Let the groups of the last step wait again: they were not trained."""
        self._groups, self._taken = self._taken | self._groups, {}

    def _note(self, group: GroupMetrics) -> None:
        self._slots_s += group.busy_s
        self._rates.add(group.num_tokens)

    def tell_the_rest(self) -> None:
        """Say what was dropped after the last step, which no step's metrics tell."""
        self.forget_dropped()
        count, self._num_forgotten = self._num_forgotten, 0
        if count:
            groups = "group was" if count == 1 else "groups were"
            logger.warning("%d %s dropped after the last step", count, groups)

    def state_dict(self) -> dict[str, Any]:
        """Return the metrics of groups that wait or were dropped, as json can hold them."""
        return {
            "waiting": [[number, asdict(group)] for number, group in self._groups.items()],
            "dropped": [asdict(group) for group in self._dropped],
            "num_forgotten": self._num_forgotten,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._groups = {number: GroupMetrics(**group) for number, group in state["waiting"]}
        self._dropped = [GroupMetrics(**group) for group in state["dropped"]]
        self._num_forgotten = state.get("num_forgotten", 0)


def _part(metrics: Mapping[str, float], *, is_sum: bool) -> dict[str, float]:
    sums = {name for name in metrics if name.startswith(_SUMS) or name.endswith(_COUNT)}
    return {name: value for name, value in metrics.items() if (name in sums) is is_sum}


def _sums(rows: Sequence[Mapping[str, float]]) -> Metrics:
    return {
        name: sum(row.get(name, 0.0) for row in rows)
        for name in dict.fromkeys(name for row in rows for name in row)
    }


_DETAILS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": mean,
    "std": deviation,
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
        f"{prefix}/failed_runs": float(sum(r.request.num_runs for r in results if r.failure)),
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


def _by_metric_and_task(results: Iterable[RolloutResult]) -> dict[str, dict[int, list[float]]]:
    collected: dict[str, dict[int, list[float]]] = {}
    for result in results:
        for row in run_metrics(result):
            for name, value in row.items():
                collected.setdefault(name, {}).setdefault(result.request.key.task, []).append(value)
    return collected


def _statistics(tasks: Iterable[Sequence[float]], *, repeat_times: int) -> Mapping[str, float]:
    groups = list(tasks)
    means = {"mean": mean(map(mean, groups))}
    if repeat_times == 1:
        return means
    return means | {
        "std": mean(map(deviation, groups)),
        "best": mean(map(max, groups)),
        "worst": mean(map(min, groups)),
    }
