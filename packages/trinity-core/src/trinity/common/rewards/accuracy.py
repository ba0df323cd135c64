"""1 for a right answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trinity.common.rewards.base import RewardFn
from trinity.common.rewards.equivalence import is_equivalent

if TYPE_CHECKING:
    from collections.abc import Callable

_TAG = re.compile(r"</?(?:think|answer)>")

__all__ = ["AccuracyReward"]


class AccuracyReward(RewardFn):
    """Compares response and truth as mathematics, or by a parser of one's own.

    Args:
        answer_parser: takes the answer out of a text; equal answers are right. None: the last
            mathematical expression is the answer.
    """

    def __init__(self, answer_parser: Callable[[str], object] | None = None) -> None:
        self.answer_parser = answer_parser

    def __call__(
        self, response: str, prompt: object = None, truth: object = None, **kwargs: Any
    ) -> dict[str, float]:
        """Return ``accuracy``, 1 or 0."""
        expected = _final(str(truth)) if truth is not None else ""
        if self.answer_parser is None:
            # A number that touches a tag is not seen as one.
            return {"accuracy": float(is_equivalent(_TAG.sub(" ", response), expected))}
        return {"accuracy": float(self.answer_parser(response) == self.answer_parser(expected))}


def _final(truth: str) -> str:
    """Return what follows ``####``, as data sets such as GSM8K write the result of a solution.

    >>> _final("48 / 2 = 24 #### 24")
    '24'
    """
    return truth.rpartition("####")[2].strip()
