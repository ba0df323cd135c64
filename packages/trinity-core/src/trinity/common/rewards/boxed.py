"""1 for a right answer in a box."""

from __future__ import annotations

import re
from typing import Any

from trinity.common.rewards.base import RewardFn
from trinity.common.rewards.equivalence import is_equivalent

__all__ = ["MathBoxedRewardFn"]

_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)
_BOX = "\\boxed{"


class MathBoxedRewardFn(RewardFn):
    r"""Compares what the last ``\boxed{...}`` holds with the truth.

    Args:
        with_think: whether thinking in tags is asked for.
        format_score_coef: what a response without it loses.

    A call may give both options too; what it gives counts.
    """

    def __init__(self, *, with_think: bool = False, format_score_coef: float = 0.1) -> None:
        self.with_think = with_think
        self.format_score_coef = format_score_coef

    def __call__(
        self,
        response: str,
        truth: object = None,
        with_think: bool | None = None,  # noqa: FBT001 -- published
        format_score_coef: float | None = None,
        **kwargs: Any,
    ) -> dict[str, float]:
        """Return ``accuracy``, and ``format_score`` where thinking is asked for."""
        must_think = self.with_think if with_think is None else with_think
        loss = self.format_score_coef if format_score_coef is None else format_score_coef
        answer = boxed_answer(response)
        is_right = answer is not None and truth is not None and _is_same(answer, str(truth))
        scores = {"accuracy": float(is_right)}
        if must_think:
            has_thought = _THINK.search(response) is not None
            scores["format_score"] = 0.0 if has_thought else -loss
        return scores


def boxed_answer(text: str) -> str | None:
    r"""Return what the last complete box holds; None if there is none.

    >>> boxed_answer("so \\boxed{\\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    start = text.rfind(_BOX)
    if start < 0:
        return None
    depth, begin = 1, start + len(_BOX)
    for place in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[begin:place].strip()
    return None


def _is_same(answer: str, truth: str) -> bool:
    expected = boxed_answer(truth) or truth
    return is_equivalent(f"{_BOX}{answer}}}", f"{_BOX}{expected}}}")
