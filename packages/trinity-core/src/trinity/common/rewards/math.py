"""The reward of mathematical questions: right, and in the form that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.rewards.accuracy import AccuracyReward
from trinity.common.rewards.base import RewardFn
from trinity.common.rewards.format import FormatReward

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MathRewardFn"]


class MathRewardFn(RewardFn):
    """Adds 1 for a right answer and 0.1 for think and answer tags, less 0.1 without them.

    A right answer is worth 0.9 or 1.1, a wrong one -0.1 or 0.1.

    Args:
        answer_parser: of the accuracy; see :class:`AccuracyReward`.
        pattern: of the form; see :class:`FormatReward`.
    """

    def __init__(
        self, answer_parser: Callable[[str], object] | None = None, pattern: str | None = None
    ) -> None:
        self._accuracy = AccuracyReward(answer_parser)
        self._format = FormatReward(pattern)

    def __call__(
        self, response: str, prompt: object = None, truth: object = None, **kwargs: Any
    ) -> dict[str, float]:
        """Return ``accuracy`` and ``format_score``."""
        return {
            **self._accuracy(response=response, truth=truth),
            **self._format(response=response),
        }
