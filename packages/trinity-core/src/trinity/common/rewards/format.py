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
        pattern: a regular expression that a response has to begin with, in which a dot is any
            character, instead of these tags.
        score: what the format is worth; without it the score is as much below zero.
    """

    def __init__(self, pattern: str | None = None, *, score: float = 0.1) -> None:
        self.pattern = pattern
        self.score = score
        self._wanted = re.compile(pattern, re.DOTALL | re.MULTILINE) if pattern else None

    def __call__(self, response: str, **kwargs: Any) -> dict[str, float]:
        """Return ``format_score``, 0.1 or -0.1."""
        found = self._wanted.match(response) if self._wanted else _THINK_ANSWER.fullmatch(response)
        has_format = found is not None
        return {"format_score": self.score if has_format else -self.score}
