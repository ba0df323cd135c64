"""Operators that drop or mask experiences by their rewards."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trinity.algorithm.ops import mean_and_std
from trinity.common.metrics import aggregate
from trinity.common.operators import ExperienceOperator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics


class InvalidRewardFilter(ExperienceOperator):
    """Drops experiences whose reward is missing, NaN or infinite."""

    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        kept = [exp for exp in exps if exp.reward is not None and math.isfinite(exp.reward)]
        return kept, {"filtered_count": float(len(exps) - len(kept))}


class RewardFilter(ExperienceOperator):
    """Drops experiences whose reward is below a threshold, or missing.

    Args:
        threshold: the lowest reward that goes on.
    """

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = threshold

    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        kept = [exp for exp in exps if exp.reward is not None and exp.reward >= self.threshold]
        return kept, {"filtered_count": float(len(exps) - len(kept))}


class RewardStdFilter(ExperienceOperator):
    """Drops tasks whose rewards are too much alike, and tasks of a single experience.

    Args:
        threshold: a task goes on where the population deviation of its rewards is above it.
    """

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = threshold

    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        kept_tasks, numbers = set(), []
        for task, group in _groups(exps).items():
            if len(group) < 2:
                continue
            mean, std = mean_and_std([exp.reward or 0.0 for exp in group], ddof=0)
            numbers.append({"reward_mean": mean, "reward_std": std})
            if std > self.threshold:
                kept_tasks.add(task)
        kept = [exp for exp in exps if exp.eid.tid in kept_tasks]
        metrics = aggregate(numbers, prefix="origin_group_advantages")
        return kept, metrics | {"operator_filtered_count": float(len(exps) - len(kept))}


class DAPODynamicSampling(ExperienceOperator):
    """Drops tasks that all runs solve, or none, and tasks of a single run (arXiv 2503.14476).

    Such a task has no advantage to learn from.

    Args:
        metric_key: the metric that says whether a run is correct; the reward where there is none.
        correct_threshold: a run is correct where it is above.
    """

    def __init__(self, metric_key: str = "accuracy", correct_threshold: float = 0.0) -> None:
        self.metric_key = metric_key
        self.correct_threshold = correct_threshold

    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        kept_tasks = set()
        dropped = {True: 0, False: 0}  # solved by all, by none
        for task, group in _groups(exps).items():
            if len(group) < 2:
                continue
            verdicts = {self._is_correct(exp) for exp in group}
            if len(verdicts) == 2:
                kept_tasks.add(task)
            else:
                dropped[verdicts.pop()] += len(group)
        kept = [exp for exp in exps if exp.eid.tid in kept_tasks]
        return kept, {
            "filtered_count": float(len(exps) - len(kept)),
            "dropped_all_correct": float(dropped[True]),
            "dropped_all_wrong": float(dropped[False]),
        }

    def _is_correct(self, experience: Experience) -> bool:
        value = experience.metrics.get(self.metric_key, experience.reward)
        return (0.0 if value is None else value) > self.correct_threshold


class MaskResponseTruncated(ExperienceOperator):
    """Masks every token of a response that was cut off; its reward still counts in its group.

    (DAPO's overlong filtering, arXiv 2503.14476.)
    """

    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        import torch

        cut = [exp for exp in exps if exp.truncate_status == "response_truncated"]
        for exp in cut:
            exp.action_mask = torch.zeros(exp.response_length, dtype=torch.bool)
        return exps, {"masked_truncated_count": float(len(cut))}


def _groups(exps: Iterable[Experience]) -> dict[str, list[Experience]]:
    groups: dict[str, list[Experience]] = {}
    for exp in exps:
        groups.setdefault(exp.eid.tid, []).append(exp)
    return groups
