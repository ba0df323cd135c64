"""Compute REC's advantage: the reward against its group, good and bad in balance."""

from __future__ import annotations

import random
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trinity.algorithm.advantage_fn.base import AdvantageFn, ComputedOn
from trinity.algorithm.advantage_fn.grouped import grouped_rewards, with_scores
from trinity.algorithm.args import check_choice
from trinity.algorithm.ops import mean_and_std
from trinity.common.metrics import aggregate

if TYPE_CHECKING:
    from trinity.common.batch import ExperienceBatch

__all__ = ["RECAdvantageFn"]

Drop = Literal["balance"]


class RECAdvantageFn(AdvantageFn):
    """Scores a row by ``R - mean`` of its group, or ``(R - mean) / (std + epsilon)``.

    A run of several rows counts once in its group, with the mean of their rewards; each row is
    scored by its own. The deviation is the population one (ddof 0; arXiv 2509.24203). A group of
    one is scored R, or ``R / (1 + epsilon)``; equal rewards exactly 0.

    Args:
        epsilon: keeps the division finite.
        std_normalize: divide by the deviation.
        drop: ``balance``: where more runs lie below the mean than not, as many of them as are too
            many, drawn at random, get 0, and mean and deviation are those of the rest; None: none.

    Raises:
        ValueError: no such way to drop.
    """

    computed_on: ClassVar[ComputedOn] = "group"

    def __init__(
        self, *, epsilon: float = 1e-6, std_normalize: bool = False, drop: Drop | None = None
    ) -> None:
        if drop is not None:
            check_choice("drop", drop, Drop)
        self.epsilon = epsilon
        self.std_normalize = std_normalize
        self.drop = drop

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the rows group by group with their advantages, and the groups' statistics."""
        groups = grouped_rewards(exps, computed_on=self.computed_on)
        rewards = groups.reward_B.tolist()
        score_B = groups.reward_B.new_zeros(len(rewards))
        run_B = exps.non_tensor_batch.get("rid") or range(len(rewards))
        numbers = []
        members: dict[str, list[int]] = exps.groups()
        for uid, rows in members.items():
            runs: dict[object, list[int]] = {}
            for row in rows:
                runs.setdefault(run_B[row], []).append(row)
            means = [fmean(rewards[row] for row in own) for own in runs.values()]
            kept = self._kept(uid, means)
            mean, std = _mean_and_deviation([means[place] for place in kept])
            divisor = std + self.epsilon if self.std_normalize else 1.0
            for row in (row for place in kept for row in list(runs.values())[place]):
                score_B[row] = (rewards[row] - mean) / divisor
            dropped = 1.0 - len(kept) / len(runs)
            numbers.append({"drop_balance": dropped, "reward_mean": mean, "reward_std": std})
        order = [row for rows in members.values() for row in rows]
        batch = with_scores(exps.select(order), score_B[order])
        return batch, aggregate(numbers, prefix="group_advantages")

    def _kept(self, uid: str, rewards: list[float]) -> list[int]:
        """Return which places of a group count."""
        places = list(range(len(rewards)))
        if self.drop is None:
            return places
        mean, _ = mean_and_std(rewards)
        bad = [place for place in places if rewards[place] < mean]
        num_too_many = 2 * len(bad) - len(places)
        if num_too_many <= 0:
            return places
        # Seeded by the task: the draw needs no state, and a resumed run repeats it.
        dropped = set(random.Random(uid).sample(bad, num_too_many))
        return [place for place in places if place not in dropped]


def _mean_and_deviation(rewards: list[float]) -> tuple[float, float]:
    """Return mean and population deviation; 0 and 1 for a single reward."""
    return (0.0, 1.0) if len(rewards) == 1 else mean_and_std(rewards, ddof=0)
