"""Compute GiGPO's advantage: of the run in its task, and of the step among like states."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trinity.algorithm.advantage_fn.base import AdvantageFn, ComputedOn
from trinity.algorithm.advantage_fn.grouped import row_rewards, with_scores
from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import mean_and_std
from trinity.common.metrics import Metrics, aggregate, with_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.batch import ExperienceBatch

__all__ = ["GiGPOAdvantageFn"]

FNorm = Literal["none", "std"]


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """The two advantages of each row, and numbers about the groups they come from."""

    of_run: list[float]
    of_step: list[float]
    tasks: list[Metrics]
    anchor_sizes: list[int]


class GiGPOAdvantageFn(AdvantageFn):
    """Scores a step by ``A_E + omega A_S`` (arXiv 2505.10978).

    A_E compares the run's return with those of the other runs of the task. A_S compares the return
    from this step on, discounted by gamma, with those of the other steps of the task that began in
    the same state; 0 where there is no other. Comparing is ``(v - mean) / (f + epsilon)``, f being
    1 or the sample deviation, and ``v / (1 + epsilon)`` of a single run. Trinity-RFT compares like
    states of different tasks too; the paper stays within one.

    Args:
        omega: the weight of A_S.
        gamma: how much a later reward is worth.
        fnorm: divide by the deviation, or not.
        epsilon: keeps the division finite.
        step_reward_key: where a step's reward stands in ``info``; a run of which no step has one
            has its reward at its last step.
        env_state_hash_key: where the state that a step started in stands in ``info``.

    Raises:
        ValueError: no such ``fnorm``.
    """

    computed_on: ClassVar[ComputedOn] = "group"

    def __init__(
        self,
        *,
        omega: float = 1.0,
        gamma: float = 1.0,
        fnorm: FNorm = "none",
        epsilon: float = 1e-6,
        step_reward_key: str = "step_reward",
        env_state_hash_key: str = "env_state_hash",
    ) -> None:
        check_choice("fnorm", fnorm, FNorm)
        self.omega = omega
        self.gamma = gamma
        self.fnorm = fnorm
        self.epsilon = epsilon
        self.step_reward_key = step_reward_key
        self.env_state_hash_key = env_state_hash_key

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the rows in order with their advantages, and numbers about runs and anchors."""
        num_rows = len(exps)
        parts = _Parts(of_run=[0.0] * num_rows, of_step=[0.0] * num_rows, tasks=[], anchor_sizes=[])
        rewards = row_rewards(exps, computed_on="group")
        plain_rewards = rewards.tolist()
        for rows in exps.groups().values():
            self._score_task(exps, rows, plain_rewards, parts)
        scores = [
            run + self.omega * step for run, step in zip(parts.of_run, parts.of_step, strict=True)
        ]
        return with_scores(exps, rewards.new_tensor(scores)), _metrics(parts)

    def _score_task(
        self, exps: ExperienceBatch, rows: Sequence[int], rewards: Sequence[float], parts: _Parts
    ) -> None:
        later: dict[int, float] = {}  # the discounted return from each row's step on
        runs = _runs(exps, rows)
        totals = []
        for run in runs:
            step_rewards = self._step_rewards(exps, run, rewards)
            totals.append(sum(step_rewards))
            value = 0.0
            for row, reward in zip(reversed(run), reversed(step_rewards), strict=True):
                value = reward + self.gamma * value
                later[row] = value
        mean, divisor = self._scale(totals)
        parts.tasks.append({"episode_reward_mean": mean, "episode_reward_std": divisor})
        for run, total in zip(runs, totals, strict=True):
            for row in run:
                parts.of_run[row] = (total - mean) / (divisor + self.epsilon)
        self._score_anchors(exps, later, parts)

    def _score_anchors(
        self, exps: ExperienceBatch, later: Mapping[int, float], parts: _Parts
    ) -> None:
        anchors: dict[object, list[int]] = {}
        for row in later:
            state = exps.experiences[row].info.get(self.env_state_hash_key)
            if state is not None:
                anchors.setdefault(state, []).append(row)
        for members in anchors.values():
            parts.anchor_sizes.append(len(members))
            if len(members) < 2:
                continue
            mean, divisor = self._scale([later[row] for row in members])
            for row in members:
                parts.of_step[row] = (later[row] - mean) / (divisor + self.epsilon)

    def _step_rewards(
        self, exps: ExperienceBatch, run: Sequence[int], rewards: Sequence[float]
    ) -> list[float]:
        infos = [exps.experiences[row].info for row in run]
        if any(self.step_reward_key in info for info in infos):
            return [float(info.get(self.step_reward_key) or 0.0) for info in infos]
        return [0.0] * (len(run) - 1) + [rewards[run[-1]]]

    def _scale(self, values: Sequence[float]) -> tuple[float, float]:
        """Return what to subtract and what to divide by, epsilon aside."""
        if len(values) == 1:
            return 0.0, 1.0
        mean, std = mean_and_std(values)
        return mean, std if self.fnorm == "std" else 1.0


def _runs(exps: ExperienceBatch, rows: Sequence[int]) -> list[list[int]]:
    """Return the rows of each run in step order."""
    runs: dict[str, list[int]] = {}
    names, steps = exps["rid"], exps["step"]
    for row in rows:
        runs.setdefault(names[row], []).append(row)
    return [sorted(run, key=lambda row: steps[row]) for run in runs.values()]


def _metrics(parts: _Parts) -> Metrics:
    if not parts.of_run:
        return {}
    num_groups, num_shared = len(parts.anchor_sizes), sum(n > 1 for n in parts.anchor_sizes)
    numbers = {
        "anchor_groups_total": float(num_groups),
        "anchor_groups_size_gt1": float(num_shared),
        "anchor_group_hit_ratio": num_shared / num_groups if num_groups else 0.0,
        "mean_abs_A_E": fmean(map(abs, parts.of_run)),
        "mean_abs_A_S": fmean(map(abs, parts.of_step)),
    }
    metrics = aggregate(parts.tasks, prefix="gigpo") | with_prefix("gigpo", numbers)
    return metrics | {"experience_count": float(len(parts.of_run))}
