"""Compute GRPO's advantage: the reward, normalised in its group.

B rows of a batch   G groups
"""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trinity.algorithm.advantage_fn.base import AdvantageFn, ComputedOn
from trinity.algorithm.advantage_fn.grouped import (
    GroupedRewards,
    grouped_rewards,
    spread,
    with_scores,
)
from trinity.algorithm.args import check_choice

if TYPE_CHECKING:
    from torch import Tensor

    from trinity.common.batch import ExperienceBatch
    from trinity.common.experience import Experience

__all__ = ["GRPOAdvantageFn", "GRPOBatchAdvantageFn"]

StdCalLevel = Literal["group", "batch"]


class GRPOAdvantageFn(AdvantageFn):
    """Scores a row by ``(R - mean) / (std + epsilon)`` of its group (arXiv 2402.03300).

    The deviation is the sample one (ddof 1). A group of one is scored ``R / (1 + epsilon)``. Equal
    rewards are scored exactly 0.

    Args:
        epsilon: keeps the division finite.
        std_threshold: drop groups whose deviation is not above it, and groups of one; None: drop
            none.
        duplicate_experiences: with ``std_threshold``, fill the place of each dropped group with a
            copy of a kept one (Polaris).
        rank_penalty: lower a row's reward by up to this share, by its rank in mean log-probability
            (arXiv 2506.02355); None: no penalty. The lowered reward is scored; Trinity-RFT lowers
            it in the mean and the deviation only.
        std_cal_level: divide by the deviation of the group or of the whole batch
            (arXiv 2508.08221).
        normalize_by_std: False: the score is ``R - mean``, as in Dr. GRPO (arXiv 2503.20783), so
            that easy and hard tasks do not weigh more than others.
    """

    computed_on: ClassVar[ComputedOn] = "group"
    needs_group: ClassVar[bool] = True

    def __init__(
        self,
        *,
        epsilon: float = 1e-6,
        std_threshold: float | None = None,
        duplicate_experiences: bool = False,
        rank_penalty: float | None = None,
        std_cal_level: StdCalLevel = "group",
        normalize_by_std: bool = True,
    ) -> None:
        check_choice("std_cal_level", std_cal_level, StdCalLevel)
        self.epsilon = epsilon
        self.std_threshold = std_threshold
        self.changes_rows = std_threshold is not None
        self.duplicate_experiences = duplicate_experiences
        self.rank_penalty = rank_penalty
        self.std_cal_level = std_cal_level
        self.needs_whole_step = std_cal_level == "batch" or duplicate_experiences
        self.normalize_by_std = normalize_by_std

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the kept rows with their advantages, and the groups' statistics.

        ``computed_on = "group"`` returns the rows group by group; ``"batch"`` leaves them in order.
        """
        groups = grouped_rewards(exps, computed_on=self.computed_on)
        kept_G = self._kept(groups)
        score_B = self._scores(exps, groups)
        metrics = group_metrics(groups)
        rows = self._rows(groups, kept_G)
        metrics["filtered_count"] = float(len(exps) - int(kept_G[groups.group_B].sum()))
        copies = self._duplicates(exps, groups, kept_G)
        if rows is None and not copies:
            return with_scores(exps, score_B), metrics
        chosen = (range(len(exps)) if rows is None else rows.tolist(), copies)
        order = [row for part in chosen for row in part]
        batch = exps.select(order)
        _copy_repeated(batch.experiences)
        return with_scores(batch, score_B[order]), metrics

    def _kept(self, groups: GroupedRewards) -> Tensor:
        if self.std_threshold is None:
            return groups.count_G > 0
        return (groups.count_G > 1) & (groups.std_G > self.std_threshold)

    def _scores(self, exps: ExperienceBatch, groups: GroupedRewards) -> Tensor:
        if self.rank_penalty is not None:
            lowered_B = groups.reward_B * (1 - self.rank_penalty * _relative_rank(exps, groups))
            groups = grouped_rewards(exps, computed_on=self.computed_on, reward_B=lowered_B)
        mean_G, std_G = mean_and_std_of_groups(groups)
        distance_B = groups.reward_B - mean_G[groups.group_B]
        if not self.normalize_by_std:
            return distance_B
        if self.std_cal_level == "batch":
            return distance_B / (groups.batch_std + self.epsilon)
        return distance_B / (std_G + self.epsilon)[groups.group_B]

    def _rows(self, groups: GroupedRewards, kept_G: Tensor) -> Tensor | None:
        if self.computed_on == "group":
            return groups.rows(kept_G)
        return None if bool(kept_G.all()) else kept_G[groups.group_B].nonzero()[:, 0]

    def _duplicates(
        self, exps: ExperienceBatch, groups: GroupedRewards, kept_G: Tensor
    ) -> list[int]:
        kept = kept_G.nonzero()[:, 0].tolist()
        if not self.duplicate_experiences or not kept:
            return []
        # Seeded by what the batch holds: the draw needs no state, and a resumed run repeats it.
        draw = random.Random("|".join(exps["uid"]))
        drawn = [draw.choice(kept) for _ in range(len(kept_G) - len(kept))]
        return [
            row for group in drawn for row in (groups.group_B == group).nonzero()[:, 0].tolist()
        ]


class GRPOBatchAdvantageFn(GRPOAdvantageFn):
    """Scores the rows of the trainer's batch by the sum of their token rewards."""

    computed_on: ClassVar[ComputedOn] = "batch"


def mean_and_std_of_groups(groups: GroupedRewards) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of each group, 0 and 1 for a group of one."""
    single_G = groups.is_single_G
    return groups.mean_G.masked_fill(single_G, 0.0), groups.std_G.masked_fill(single_G, 1.0)


def group_metrics(groups: GroupedRewards) -> dict[str, float]:
    """Return the spread of the groups' means and deviations."""
    mean_G, std_G = mean_and_std_of_groups(groups)
    return spread("group_advantages", reward_mean=mean_G, reward_std=std_G)


def _relative_rank(exps: ExperienceBatch, groups: GroupedRewards) -> Tensor:
    """Return each row's rank in its group by mean log-probability, from 0 to (n - 1) / n.

    Equal log-probabilities keep their order.
    """
    means = [_mean_logprob(experience) for experience in exps.experiences]
    ranks_B = groups.reward_B.new_zeros(len(means))
    members: dict[int, list[int]] = {}
    for row, group in enumerate(groups.group_B.tolist()):
        members.setdefault(group, []).append(row)
    for rows in members.values():
        for rank, row in enumerate(sorted(rows, key=means.__getitem__)):
            ranks_B[row] = rank / len(rows)
    return ranks_B


def _mean_logprob(experience: Experience) -> float:
    if experience.logprobs is None:
        raise ValueError(
            f"rank_penalty needs log-probabilities, but experience {experience.eid} has none"
        )
    return float(experience.logprobs.double().mean())


def _copy_repeated(experiences: list[Experience]) -> None:
    seen: set[int] = set()
    for index, experience in enumerate(experiences):
        if id(experience) in seen:
            experiences[index] = copy.deepcopy(experience)
        seen.add(id(experience))
