"""Where a response says its answer, and whether that is right."""

from __future__ import annotations

import re
from math import isclose
from typing import TYPE_CHECKING

from trinity.common.rewards import MathBoxedRewardFn
from trinity.common.rewards.boxed import boxed_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["accuracy", "final_answer", "is_close", "is_right", "true_answer"]

_STATED = re.compile(r"(?:final|the)\s+answer\s+is\s*:?\s*(?=\S)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*)?\.?\d+")
TOLERANCE = 1e-4  # between numbers, relative: 3.1416 stands for pi
FACTORS = (1.0, 100.0, 0.01)  # a percentage may be given as a part, and the other way round


def accuracy(response: str, *, truth: object) -> float:
    """Return 1 if the answer of the response is the truth, else 0.

    Numbers may differ by 1e-4 of their size, and may be percentages.
    """
    wanted = true_answer(str(truth))
    answer = final_answer(response, truth=wanted)
    if answer is None or not wanted:
        return 0.0
    return float(is_close(answer, truth=wanted))


def is_close(
    answer: str,
    *,
    truth: str,
    factors: Sequence[float] = FACTORS,
    tolerance: float = TOLERANCE,
) -> bool:
    """Return whether two answers are nearly the same number, else the same mathematics."""
    given, expected = _number(answer), _number(truth)
    if given is None or expected is None:
        return is_right(answer, truth=truth)
    return any(isclose(given, expected * factor, rel_tol=tolerance) for factor in factors)


def is_right(answer: str, *, truth: str) -> bool:
    """Return whether two answers mean the same mathematics."""
    scores = MathBoxedRewardFn()(response=f"\\boxed{{{answer}}}", truth=truth)
    return scores["accuracy"] == 1.0


def final_answer(text: str, *, truth: str = "") -> str | None:
    r"""Return the answer: the last box, the rest of the last ``the answer is``, the last number.

    >>> final_answer("It is \\boxed{6}."), final_answer("So the answer is 7."), final_answer("?")
    ('6', '7', None)
    >>> final_answer("The answer is 6. The answer is correct.", truth="7")
    '6'

    Args:
        text: of the response.
        truth: where it has a number, a stated answer without one is passed over.
    """
    boxed = boxed_answer(text)
    if boxed is not None:
        return boxed
    wants_number, end = _NUMBER.search(truth) is not None, len(text)
    for stated in reversed([*_STATED.finditer(text)]):
        answer = text[stated.end() : end].partition("\n")[0]
        if not wants_number or _NUMBER.search(answer):
            return answer.strip().rstrip(".").strip("$")
        end = stated.start()
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else None


def true_answer(truth: str) -> str:
    r"""Return the result of a solution: its box, else what follows ``####``, else all of it.

    >>> true_answer("48 / 2 = 24 #### 24"), true_answer("\\frac{1}{2}")
    ('24', '\\frac{1}{2}')
    """
    boxed = boxed_answer(truth)
    return truth.rpartition("####")[2].strip() if boxed is None else boxed


def _number(text: str) -> float | None:
    found = _NUMBER.fullmatch(text.strip().strip("$").removesuffix("\\%").removesuffix("%"))
    return float(found[0].replace(",", "")) if found else None
