"""The reward of mathematical questions: right, and in the form that was asked for."""

from __future__ import annotations

from typing import Any

from trinity.common.rewards.accuracy import AccuracyReward
from trinity.common.rewards.base import RewardFn
from trinity.common.rewards.format import FormatReward

__all__ = ["MathRewardFn"]


class MathRewardFn(RewardFn):
    """Adds 1 for a right answer and 0.1 for think and answer tags, less 0.1 without them.

    A right answer is worth 0.9 or 1.1, a wrong one -0.1 or 0.1.
    """

    def __init__(self) -> None:
        self._accuracy = AccuracyReward()
        self._format = FormatReward()

    def __call__(  # type: ignore[override] # the keywords it wants, by name
        self, *, response: str, truth: object = None, **kwargs: Any
    ) -> dict[str, float]:
        """Return ``accuracy`` and ``format_score``."""
        return {
            **self._accuracy(response=response, truth=truth),
            **self._format(response=response),
        }
