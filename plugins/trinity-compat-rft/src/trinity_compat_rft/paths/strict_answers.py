"""``trinity.common.rewards.qwen25_eval``: is an answer right, and its plain form."""

from __future__ import annotations

import re
from typing import Any

from trinity_compat_rft.answers import accuracy, final_answer, true_answer
from trinity_compat_rft.plain_answer import strip_string

__all__ = ["fix_fracs", "strip_string", "verify_math_answer"]


def verify_math_answer(response_text: str, ground_truth: str) -> tuple[float, dict[str, Any]]:
    """Return 1 or 0, and what was compared.

    Args:
        response_text: of the model.
        ground_truth: the answer, or a solution that ends in it.
    """
    score, truth = accuracy(response_text, truth=ground_truth), true_answer(str(ground_truth))
    details = {
        "parsed_prediction": final_answer(response_text, truth=truth),
        "ground_truth": truth,
        "is_correct": score == 1.0,
    }
    return score, details


def fix_fracs(string: str) -> str:
    r"""Return an answer whose fractions have braces around both parts.

    >>> fix_fracs(r"\frac12 + \frac1{72} + \frac{1}{3}")
    '\\frac{1}{2} + \\frac{1}{72} + \\frac{1}{3}'
    """
    whole = re.sub(r"\\frac([^\s{}])([^\s{}])", r"\\frac{\1}{\2}", string)
    return re.sub(r"\\frac([^\s{}])(?=\{)", r"\\frac{\1}", whole)
