"""Score the rows of a group against each other.

B rows of a batch   R response
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.advantage_fn.base import AdvantageFn, ComputedOn
from trinity.algorithm.ops import masked_sum
from trinity.common.metrics import aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.batch import ExperienceBatch

__all__ = ["GroupAdvantageFn", "RewardGroup", "reward_groups", "with_scores"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardGroup:
    """The rows of one task."""

    rows: list[int]
    rewards: list[float]  # of each row
    runs: list[str]  # which run each row belongs to

    @property
    def run_rewards(self) -> list[float]:
        """Return one reward a run (the mean of its rows), so that each run counts once."""
        by_run: dict[str, list[float]] = {}
        for run, reward in zip(self.runs, self.rewards, strict=True):
            by_run.setdefault(run, []).append(reward)
        return [values[0] if len(values) == 1 else fmean(values) for values in by_run.values()]


class GroupAdvantageFn(AdvantageFn):
    """Base of the functions whose score of a row depends on its own group alone."""

    computed_on: ClassVar[ComputedOn] = "group"

    @abstractmethod
    def score(self, group: RewardGroup) -> tuple[list[float], dict[str, float]]:
        """Return the score of each row, and numbers about the group."""

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch group by group, each token's advantage its row's score."""
        groups = reward_groups(exps, computed_on=self.computed_on)
        scored = [self.score(group) for group in groups]
        rows = [row for group in groups for row in group.rows]
        scores = [score for row_scores, _ in scored for score in row_scores]
        metrics = aggregate((numbers for _, numbers in scored), prefix="group_advantages")
        return with_scores(exps.select(rows), scores), metrics


def reward_groups(exps: ExperienceBatch, *, computed_on: ComputedOn) -> list[RewardGroup]:
    """Return the groups of the batch in first-seen order.

    In the trainer's batch a row's reward is the sum of its token rewards, which a KL penalty may
    have lowered; before, it is the reward of the experience.
    """
    if computed_on == "batch":
        rewards_B = masked_sum(exps["token_level_rewards"], exps["action_mask"], -1)
    else:
        rewards_B = exps["rewards"]
    rewards = rewards_B.double().tolist()
    runs = exps["rid"] if "rid" in exps else [str(row) for row in range(len(rewards))]
    return [
        RewardGroup(
            rows=rows, rewards=[rewards[row] for row in rows], runs=[runs[row] for row in rows]
        )
        for rows in exps.groups().values()
    ]


def with_scores(exps: ExperienceBatch, scores: Sequence[float]) -> ExperienceBatch:
    """Return the batch with each row's score as advantage and return of its unmasked tokens."""
    mask_BR = exps["action_mask"].bool()
    scores_BR = exps["token_level_rewards"].new_tensor(scores)[:, None].expand(mask_BR.shape)
    exps["advantages"] = scores_BR.masked_fill(~mask_BR, 0.0)
    exps["returns"] = exps["advantages"].clone()
    return exps
