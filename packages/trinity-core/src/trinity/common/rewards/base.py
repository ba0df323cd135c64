"""The contract of a reward function: named scores for one response."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from trinity.extend import Registry

__all__ = ["REWARD_FUNCTIONS", "RewardFn"]

REWARD_FUNCTIONS: Registry = Registry("reward_functions", kind="reward_fn")


class RewardFn(ABC):
    """Scores a response. The reward is the sum of the scores; each is logged under its name.

    It is called with ``response``, ``truth`` and ``prompt`` by keyword, and with those of
    ``reward_fn_args`` that the constructor does not take. A pure function: equal arguments give
    equal scores, in any thread.
    """

    @abstractmethod
    def __call__(self, **kwargs: Any) -> dict[str, float]:
        """Return finite scores by name.

        Args:
            kwargs: ``response``, ``truth``, ``prompt`` and further values, ignored if not wanted.
        """
