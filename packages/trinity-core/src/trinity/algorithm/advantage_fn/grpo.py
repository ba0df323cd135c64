"""Compute GRPO's advantage: the reward, normalised in its group."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trinity.algorithm.advantage_fn.base import AdvantageFn, ComputedOn
from trinity.algorithm.advantage_fn.group import RewardGroup, reward_groups, with_scores
from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import mean_and_std
from trinity.common.metrics import aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.batch import ExperienceBatch
    from trinity.common.experience import Experience

__all__ = ["GRPOAdvantageFn"]

StdCalLevel = Literal["group", "batch"]


class GRPOAdvantageFn(AdvantageFn):
    """Scores a row by ``(R - mean) / (std + epsilon)`` of its group (arXiv 2402.03300).

    The deviation is the sample one (ddof 1). A group of one is scored ``R / (1 + epsilon)``.

    Args:
        epsilon: keeps the division finite.
        std_threshold: drop groups whose deviation is not above it, and groups of one; None: drop
            none.
        duplicate_experiences: with ``std_threshold``, fill the place of each dropped group with a
            copy of a kept one (Polaris).
        rank_penalty: lower a row's reward by up to this share, by its rank in mean log-probability
            (arXiv 2506.02355); None: no penalty.
        std_cal_level: divide by the deviation of the group or of the whole batch
            (arXiv 2508.08221).
    """

    computed_on: ClassVar[ComputedOn] = "group"

    def __init__(
        self,
        *,
        epsilon: float = 1e-6,
        std_threshold: float | None = None,
        duplicate_experiences: bool = False,
        rank_penalty: float | None = None,
        std_cal_level: StdCalLevel = "group",
    ) -> None:
        check_choice("std_cal_level", std_cal_level, StdCalLevel)
        self.epsilon = epsilon
        self.std_threshold = std_threshold
        self.duplicate_experiences = duplicate_experiences
        self.rank_penalty = rank_penalty
        self.std_cal_level = std_cal_level

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the kept rows group by group with their advantages, and the groups' statistics."""
        groups = reward_groups(exps, computed_on=self.computed_on)
        compared = [self._penalised(group, exps.experiences) for group in groups]
        batch_std = self._batch_std(compared)
        kept = [i for i, group in enumerate(groups) if self._is_kept(group)]
        chosen = kept + self._duplicates(exps, kept=kept, dropped=len(groups) - len(kept))
        scores = [score for i in chosen for score in self._scores(compared[i], std=batch_std)]
        batch = exps.select([row for i in chosen for row in groups[i].rows])
        _copy_repeated(batch.experiences)
        num_kept = sum(len(groups[i].rows) for i in kept)
        return with_scores(batch, scores), self._metrics(groups, len(exps) - num_kept)

    def _penalised(self, group: RewardGroup, experiences: Sequence[Experience]) -> RewardGroup:
        if self.rank_penalty is None:
            return group
        means = [_mean_logprob(experiences[row]) for row in group.rows]
        ranked = sorted(range(len(means)), key=means.__getitem__)
        rank_of = {index: rank for rank, index in enumerate(ranked)}
        lowered = [
            reward * (1 - self.rank_penalty * rank_of[index] / len(means))
            for index, reward in enumerate(group.rewards)
        ]
        return replace(group, rewards=lowered)

    def _batch_std(self, groups: Sequence[RewardGroup]) -> float | None:
        if self.std_cal_level == "group":
            return None
        everything = [reward for group in groups for reward in group.run_rewards]
        return mean_and_std(everything)[1] if len(everything) > 1 else 1.0

    def _is_kept(self, group: RewardGroup) -> bool:
        if self.std_threshold is None:
            return True
        run_rewards = group.run_rewards
        return len(run_rewards) > 1 and mean_and_std(run_rewards)[1] > self.std_threshold

    def _duplicates(self, exps: ExperienceBatch, *, kept: list[int], dropped: int) -> list[int]:
        if not self.duplicate_experiences or not kept:
            return []
        # Seeded by what the batch holds: the draw needs no state, and a resumed run repeats it.
        draw = random.Random("|".join(exps["uid"]))
        return [draw.choice(kept) for _ in range(dropped)]

    def _scores(self, group: RewardGroup, *, std: float | None) -> list[float]:
        mean, own_std = _mean_and_std_of_runs(group)
        divisor = (own_std if std is None else std) + self.epsilon
        return [(reward - mean) / divisor for reward in group.rewards]

    def _metrics(self, groups: Sequence[RewardGroup], filtered: int) -> dict[str, float]:
        numbers = []
        for group in groups:
            mean, std = _mean_and_std_of_runs(group)
            numbers.append({"reward_mean": mean, "reward_std": std})
        return aggregate(numbers, prefix="group_advantages") | {"filtered_count": float(filtered)}


def _mean_and_std_of_runs(group: RewardGroup) -> tuple[float, float]:
    values = group.run_rewards
    return mean_and_std(values) if len(values) > 1 else (0.0, 1.0)


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
