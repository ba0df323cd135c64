"""Advantage functions: the contract, its registry, and what functions on groups share."""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from typing import Any

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


def __getattr__(name: str) -> "Any":  # Any: what a plugin serves
    from trinity.extend.published import published_name

    return published_name(__name__, name)
