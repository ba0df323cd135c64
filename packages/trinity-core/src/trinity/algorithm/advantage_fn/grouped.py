"""Score the runs of all tasks of a batch against each other at once, without a loop over groups.

B rows of a batch   N runs   G groups   R response

A run counts once in its group, whatever its number of rows. Statistics are float64; a group of
equal rewards has its own value as the mean and a deviation of exactly 0.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.advantage_fn.base import AdvantageFn, ComputedOn
from trinity.algorithm.ops import masked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from trinity.common.batch import ExperienceBatch
    from trinity.common.metrics import Metrics

__all__ = [
    "GroupAdvantageFn",
    "GroupedRewards",
    "grouped_rewards",
    "numbered",
    "row_rewards",
    "spread",
    "with_scores",
]


class GroupAdvantageFn(AdvantageFn):
    """Base of the functions whose score of a row depends on its own group alone.

    ``computed_on = "group"`` returns the rows group by group; ``"batch"`` leaves them in order.
    """

    computed_on: ClassVar[ComputedOn] = "group"
    needs_group: ClassVar[bool] = True  # a task of one run has nobody to be compared with

    @abstractmethod
    def score(self, groups: GroupedRewards) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the score of each row, ``[B]``, and numbers about each group, ``[G]``."""

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch, each token's advantage its row's score, and the groups' numbers."""
        groups = grouped_rewards(exps, computed_on=self.computed_on)
        score_B, numbers = self.score(groups)
        rows = groups.rows() if self.computed_on == "group" else None
        if rows is not None:
            exps, score_B = exps.select(rows.tolist()), score_B[rows]
        return with_scores(exps, score_B), spread("group_advantages", **numbers)


@dataclass(frozen=True, kw_only=True)
class GroupedRewards:
    """The rewards of a batch, and which group each belongs to.

    Groups are numbered in first-seen order.
    """

    reward_B: Tensor  # float64, of each row
    group_B: Tensor  # int64, of each row
    reward_N: Tensor  # float64, of each run: the mean of its rows
    group_N: Tensor  # int64, of each run
    num_groups: int

    @cached_property
    def count_G(self) -> Tensor:
        """Return the number of runs of each group, float64."""
        return self.sum_G(self.reward_N.new_ones(self.reward_N.shape))

    @cached_property
    def is_single_G(self) -> Tensor:
        """Return which groups have one run."""
        return self.count_G == 1

    @cached_property
    def mean_G(self) -> Tensor:
        """Return the mean of each group; equal rewards are their own mean, exactly."""
        return self.max_G.where(self._is_equal_G, self.sum_G(self.reward_N) / self.count_G)

    @cached_property
    def std_G(self) -> Tensor:
        """Return the sample deviation (ddof 1) of each group; 0 for one run and equal rewards."""
        squares_G = self.sum_G((self.reward_N - self.mean_G[self.group_N]).square())
        return (squares_G / (self.count_G - 1).clamp(min=1)).sqrt()

    @cached_property
    def batch_std(self) -> float:
        """Return the sample deviation of all runs of the batch; 1 for a single run."""
        if len(self.reward_N) < 2:
            return 1.0
        if bool((self.reward_N == self.reward_N[0]).all()):
            return 0.0
        return float(self.reward_N.std())

    def of_rows(self, values_G: Tensor) -> Tensor:
        """Return the value of each row's group."""
        return values_G[self.group_B]

    def rows(self, kept_G: Tensor | None = None) -> Tensor | None:
        """Return the rows of the groups, group by group; None: all, and they stand like that.

        Args:
            kept_G: which groups; None: all.
        """
        is_in_order = bool((self.group_B.diff() >= 0).all())
        if is_in_order and (kept_G is None or bool(kept_G.all())):
            return None
        order_B = self.group_B.argsort(stable=True)
        return order_B if kept_G is None else order_B[kept_G[self.group_B][order_B]]

    @cached_property
    def max_G(self) -> Tensor:
        """Return the largest reward of each group."""
        return _largest(self.reward_N, self.group_N, self.num_groups)

    def sum_G(self, values_N: Tensor) -> Tensor:
        """Return the sum of a value of the runs over each group."""
        return values_N.new_zeros(self.num_groups).index_add(0, self.group_N, values_N)

    @cached_property
    def _is_equal_G(self) -> Tensor:
        differs_N = self.reward_N != self.max_G[self.group_N]
        return self.sum_G(differs_N.to(self.reward_N.dtype)) == 0


def grouped_rewards(
    exps: ExperienceBatch, *, computed_on: ComputedOn, reward_B: Tensor | None = None
) -> GroupedRewards:
    """Return the rewards of a batch by task, each run's the mean of its rows.

    Args:
        exps: the batch.
        computed_on: where the rewards of the rows stand.
        reward_B: rewards to take instead; None: the batch's own.
    """
    if reward_B is None:
        reward_B = row_rewards(exps, computed_on=computed_on)
    group_B, num_groups = numbered(exps["uid"])
    runs: Sequence[str] = exps.non_tensor_batch.get("rid", ())
    if len(set(runs)) in {0, len(group_B)}:
        reward_N, group_N = reward_B, group_B
    else:
        run_B, num_runs = numbered(runs)
        first_N = group_B.new_zeros(num_runs).scatter(0, run_B.flip(0), group_B.flip(0))
        reward_N, group_N = _means(reward_B, run_B, num_runs), first_N
    return GroupedRewards(
        reward_B=reward_B,
        group_B=group_B,
        reward_N=reward_N,
        group_N=group_N,
        num_groups=num_groups,
    )


def row_rewards(exps: ExperienceBatch, *, computed_on: ComputedOn) -> Tensor:
    """Return the reward of each row, float64.

    In the trainer's batch it is the sum of the row's token rewards, which a KL penalty may have
    lowered; before, and where all tokens are masked, it is the reward of the experience.
    """
    if computed_on == "batch":
        import torch

        mask_BR = exps["action_mask"].bool()
        sums_B = masked(exps["token_level_rewards"], mask_BR).sum(-1, dtype=torch.float64)
        if "rewards" not in exps:
            return sums_B
        return sums_B.where(mask_BR.any(-1), exps["rewards"].to(sums_B))
    rewards: Tensor = exps["rewards"]
    return rewards.double()


def numbered(names: Sequence[str]) -> tuple[Tensor, int]:
    """Return the number of each name, counted in first-seen order, and how many there are.

    >>> numbered(["b", "a", "b"])
    (tensor([0, 1, 0]), 2)
    """
    import numpy as np
    import torch

    number_of = {name: number for number, name in enumerate(dict.fromkeys(names))}
    numbers = np.fromiter(map(number_of.__getitem__, names), dtype=np.int64, count=len(names))
    return torch.from_numpy(numbers), len(number_of)


def spread(prefix: str, **values: Tensor) -> Metrics:
    """Return mean, max and min of each number over the groups; nothing if there are none."""
    metrics: Metrics = {}
    for name, value in values.items():
        if len(value):
            numbers = {"mean": value.mean(), "max": value.max(), "min": value.min()}
            metrics |= {f"{prefix}/{name}/{key}": float(number) for key, number in numbers.items()}
    return metrics


def with_scores(exps: ExperienceBatch, score_B: Tensor) -> ExperienceBatch:
    """Return the batch with each row's score as advantage and return of its unmasked tokens."""
    mask_BR = exps["action_mask"].bool()
    like: Tensor = exps["token_level_rewards"]
    exps["advantages"] = score_B.to(like)[:, None].where(mask_BR, like.new_zeros(()))
    exps["returns"] = exps["advantages"].clone()
    return exps


def _means(value_B: Tensor, number_B: Tensor, count: int) -> Tensor:
    """Return the mean of the values of each number; equal values are their own mean, exactly."""
    top = _largest(value_B, number_B, count)
    ones_B = value_B.new_ones(value_B.shape)
    differs_B = (value_B != top[number_B]).to(value_B.dtype)
    size, total, num_different = (
        value_B.new_zeros(count).index_add(0, number_B, values)
        for values in (ones_B, value_B, differs_B)
    )
    return top.where(num_different == 0, total / size)


def _largest(value_B: Tensor, number_B: Tensor, count: int) -> Tensor:
    empty = value_B.new_zeros(count)
    return empty.scatter_reduce(0, number_B, value_B, reduce="amax", include_self=False)
