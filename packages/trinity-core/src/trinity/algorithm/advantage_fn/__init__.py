"""Advantage functions: the contract, its registry, and what functions on groups share."""

from trinity.algorithm.advantage_fn.base import (
    ADVANTAGE_FN,
    AdvantageFn,
    ComputedOn,
    apply_advantage,
)
from trinity.algorithm.advantage_fn.grouped import (
    GroupAdvantageFn,
    GroupedRewards,
    grouped_rewards,
    with_scores,
)

__all__ = [
    "ADVANTAGE_FN",
    "AdvantageFn",
    "ComputedOn",
    "GroupAdvantageFn",
    "GroupedRewards",
    "apply_advantage",
    "grouped_rewards",
    "with_scores",
]
