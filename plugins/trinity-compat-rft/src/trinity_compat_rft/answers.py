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
# A long word, two short ones, or nothing but one; no \command, and no product such as xy + yx.
_WORDS = re.compile(
    r"(?<![\\A-Za-z])(?:[A-Za-z]{4,}|[A-Za-z]{2,}\s+[A-Za-z]{2,})|^[A-Za-z]{2,}\W*$"
)
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
        truth: where it has a number, a stated answer with one counts first, then a formula without
            one, and words ("as follows", "correct") only where the text has no number either.
    """
    boxed = boxed_answer(text)
    if boxed is not None:
        return boxed
    stated, numbers = _stated_answers(text), _NUMBER.findall(text)
    if _NUMBER.search(truth):
        with_number = [one for one in stated if _NUMBER.search(one)]
        found = with_number or [one for one in stated if _is_formula(one)] or numbers or stated
    else:
        found = stated or numbers
    return found[-1] if found else None


def _is_formula(stated: str) -> bool:
    return any(one.isalpha() for one in stated) and _WORDS.search(stated) is None


def _stated_answers(text: str) -> list[str]:
    """Return what follows each ``the answer is`` on its line, up to the next one."""
    found = [*_STATED.finditer(text)]
    ends = [*[one.start() for one in found], len(text)][1:]
    lines = [text[one.end() : end].partition("\n")[0] for one, end in zip(found, ends, strict=True)]
    return [line.strip().rstrip(".").strip("$") for line in lines]


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
