"""A small bonus for think and answer tags."""

from __future__ import annotations

import re
from typing import Any

from trinity.common.rewards.base import RewardFn

__all__ = ["FormatReward"]

_NO_TAG = r"(?:(?!</?(?:think|answer)>).)*"
_THINK_ANSWER = re.compile(
    rf"\s*<think>{_NO_TAG}</think>\s*<answer>{_NO_TAG}</answer>\s*", re.DOTALL
)


class FormatReward(RewardFn):
    """Looks for ``<think>...</think><answer>...</answer>``, each once, with nothing around them.

    Args:
        score: what the format is worth; without it the score is as much below zero.
    """

    def __init__(self, score: float = 0.1) -> None:
        self.score = score

    def __call__(  # type: ignore[override] # the keywords it wants, by name
        self, *, response: str, **kwargs: Any
    ) -> dict[str, float]:
        """Return ``format_score``, 0.1 or -0.1."""
        has_format = _THINK_ANSWER.fullmatch(response) is not None
        return {"format_score": self.score if has_format else -self.score}
