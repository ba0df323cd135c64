"""Compute GRPO's advantage of runs of several steps.

B rows of a batch   N runs   G groups
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.advantage_fn.base import AdvantageFn, ComputedOn
from trinity.algorithm.advantage_fn.grouped import (
    GroupedRewards,
    grouped_rewards,
    numbered,
    row_rewards,
    with_scores,
)
from trinity.algorithm.advantage_fn.grpo import StdCalLevel, group_metrics, mean_and_std_of_groups
from trinity.algorithm.args import check_choice

if TYPE_CHECKING:
    from torch import Tensor

    from trinity.common.batch import ExperienceBatch

__all__ = ["StepWiseGRPOAdvantageFn"]


class StepWiseGRPOAdvantageFn(AdvantageFn):
    """Gives all steps of a run the score of its last step, ``(R - mean) / (std + epsilon)``.

    GRPO (arXiv 2402.03300) over runs: R is the reward of the step with the largest number, however
    the rows stand; Trinity-RFT takes the row that stands last. A group of one run is scored
    ``R / (1 + epsilon)``, equal rewards exactly 0.

    Args:
        epsilon: keeps the division finite.
        enable_step_norm: divide by the number of steps, so that long runs weigh no more.
        std_threshold: drop groups whose deviation is not above it, and groups of one run; None:
            drop none.
        std_cal_level: divide by the deviation of the group or of the whole batch
            (arXiv 2508.08221).
    """

    computed_on: ClassVar[ComputedOn] = "group"

    def __init__(
        self,
        *,
        epsilon: float = 1e-6,
        enable_step_norm: bool = False,
        std_threshold: float | None = None,
        std_cal_level: StdCalLevel = "group",
    ) -> None:
        check_choice("std_cal_level", std_cal_level, StdCalLevel)
        self.epsilon = epsilon
        self.enable_step_norm = enable_step_norm
        self.std_threshold = std_threshold
        self.changes_rows = std_threshold is not None
        self.std_cal_level = std_cal_level
        self.needs_whole_step = std_cal_level == "batch"

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the rows task by task and run by run, and the groups' statistics."""
        run_B, num_runs = numbered(exps["rid"])
        groups = _of_last_steps(exps, run_B, num_runs)
        kept_G = groups.count_G > 0
        if self.std_threshold is not None:
            kept_G = (groups.count_G > 1) & (groups.std_G > self.std_threshold)
        score_B = self._scores(groups)
        if self.enable_step_norm:
            score_B = score_B / run_B.bincount(minlength=num_runs)[run_B]
        order_B = (groups.group_B * num_runs + run_B).argsort(stable=True)
        order = order_B[kept_G[groups.group_B][order_B]].tolist()
        batch = with_scores(exps.select(order), score_B[order])
        num_groups = max(groups.num_groups, 1)
        return batch, group_metrics(groups) | {
            "experience_count": float(len(order)),
            "filtered_count": float(len(exps) - len(order)),
            "skipped_group_ratio": 1.0 - int(kept_G.sum()) / num_groups if len(exps) else 0.0,
        }

    def _scores(self, groups: GroupedRewards) -> Tensor:
        mean_G, std_G = mean_and_std_of_groups(groups)
        distance_B = groups.reward_B - mean_G[groups.group_B]
        if self.std_cal_level == "batch":
            return distance_B / (groups.batch_std + self.epsilon)
        return distance_B / (std_G + self.epsilon)[groups.group_B]


def _of_last_steps(exps: ExperienceBatch, run_B: Tensor, num_runs: int) -> GroupedRewards:
    """Return the groups with the reward of each run's last step as that of all its rows."""
    steps = exps["step"] if "step" in exps else [0] * len(exps)
    last: dict[int, int] = {}
    for row, run in enumerate(run_B.tolist()):
        if run not in last or steps[row] >= steps[last[run]]:
            last[run] = row
    last_N = run_B.new_tensor([last[run] for run in range(num_runs)])
    reward_N = row_rewards(exps, computed_on="group")[last_N]
    groups = grouped_rewards(exps, computed_on="group", reward_B=reward_N[run_B])
    return replace(groups, reward_N=reward_N, group_N=groups.group_B[last_N])
