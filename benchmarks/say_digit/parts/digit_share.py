"""The reward of the task: how much of an answer's beginning is the digit."""

from __future__ import annotations

from typing import Any

from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn


@REWARD_FUNCTIONS.register_module("digit_share")
class DigitShareReward(RewardFn):
    """The share of the first eight characters that are the digit."""

    def __call__(  # type: ignore[override]  # the keywords it wants, by name
        self, *, response: str, truth: str, **kwargs: Any
    ) -> dict[str, float]:
        """Return ``digit_share``, from 0 to 1."""
        return {"digit_share": response[:8].count(truth) / 8}
