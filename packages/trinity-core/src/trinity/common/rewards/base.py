"""The contract of a reward function: named scores for one response."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from trinity.extend import Registry

__all__ = ["REWARD_FUNCTIONS", "RewardFn"]

REWARD_FUNCTIONS: Registry = Registry("reward_functions", kind="reward_fn")


class RewardFn(ABC):
    """Scores a response. The reward is the sum of the scores; each is logged under its name.

    A subclass names what its call wants: ``response``, ``truth``, ``prompt``, ``messages``,
    ``task``, ``response_token`` (the ids), ``info`` (of the experience), and options of
    ``reward_fn_args`` that the constructor does not take. ``**kwargs`` gets the first three and the
    options. A pure function: equal arguments give equal scores, in any thread.
    """

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, float] | float:
        """Return finite scores by name, or one number, which is logged as ``score``.

        Args:
            args: the same by position, where somebody calls it so.
            kwargs: ``response``, ``truth``, ``prompt`` and further values, those that it names.
        """
