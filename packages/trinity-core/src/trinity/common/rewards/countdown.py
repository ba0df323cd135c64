"""The reward of the Countdown game: an equation of given numbers that gives a target."""

from __future__ import annotations

import ast
import json
import math
import operator
import re
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.rewards.base import RewardFn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["CountDownRewardFn"]

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
MAX_CHARACTERS = 200  # of an equation; deeper nesting than this allows is nobody's answer


class CountDownRewardFn(RewardFn):
    """1 for a right equation, 0.1 for an equation in answer tags, 0 for anything else."""

    conformance_args: ClassVar[dict[str, Any]] = {"truth": {"target": 46, "numbers": [40, 6]}}

    def __call__(
        self, response: str, prompt: object = None, truth: object = None, **kwargs: Any
    ) -> dict[str, float]:
        """Return ``score``.

        Args:
            response: the text with the equation in its last answer tags.
            prompt: not looked at.
            truth: ``{"target": 24, "numbers": [4, 6]}``, or the same as json.
            kwargs: not looked at.
        """
        equations = _ANSWER.findall(response)
        if not equations:
            return {"score": 0.0}
        goal: Mapping[str, Any] = json.loads(truth) if isinstance(truth, str) else truth  # type: ignore[assignment]
        left = equations[-1].partition("=")[0].strip()
        is_right = _solves(left, target=goal["target"], numbers=goal["numbers"])
        return {"score": 1.0 if is_right else 0.1}


def _solves(equation: str, *, target: float, numbers: list[float]) -> bool:
    """Return whether the equation uses each number once and gives the target."""
    used: list[float] = []
    if len(equation) > MAX_CHARACTERS:
        return False
    try:
        value = _value(ast.parse(equation, mode="eval").body, used)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError):
        return False
    return sorted(used) == sorted(numbers) and math.isclose(value, target, abs_tol=1e-5)


def _value(node: ast.expr, used: list[float]) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in {int, float}:
        number = float(node.value)  # type: ignore[arg-type] # int or float, as just checked
        used.append(number)
        return number
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, used), _value(node.right, used))
    raise ValueError("only numbers, + - * / and parentheses")
