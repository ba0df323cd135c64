"""Advantage functions: the contract, its registry, and what functions on groups share."""

from trinity.algorithm.advantage_fn.base import (
    ADVANTAGE_FN,
    AdvantageFn,
    ComputedOn,
    apply_advantage,
)
from trinity.algorithm.advantage_fn.group import (
    GroupAdvantageFn,
    RewardGroup,
    reward_groups,
    with_scores,
)

__all__ = [
    "ADVANTAGE_FN",
    "AdvantageFn",
    "ComputedOn",
    "GroupAdvantageFn",
    "RewardGroup",
    "apply_advantage",
    "reward_groups",
    "with_scores",
]
