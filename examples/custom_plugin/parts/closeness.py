"""A reward that is larger the nearer a number comes to the truth."""

from __future__ import annotations

from typing import Any

from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn


@REWARD_FUNCTIONS.register_module("closeness")
class ClosenessReward(RewardFn):
    """1 for the right number, less for one that is near, 0 for what is no number.

    Args:
        reach: the distance at which nothing is left, above 0.
    """

    def __init__(self, reach: float = 4.0) -> None:
        if reach <= 0:
            raise ValueError(f"reach is {reach}; it must be above 0")
        self.reach = reach

    def __call__(  # type: ignore[override]  # the keywords it wants, by name
        self, *, response: str, truth: str, **kwargs: Any
    ) -> dict[str, float]:
        """Return ``closeness``, from 0 to 1."""
        if not response.strip().isdecimal():
            return {"closeness": 0.0}
        distance = abs(int(response) - int(truth))
        return {"closeness": max(0.0, 1.0 - distance / self.reach)}
