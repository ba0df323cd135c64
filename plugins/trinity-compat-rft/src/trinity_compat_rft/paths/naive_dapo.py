"""``trinity.common.rewards.naive_dapo_score``: is the answer of a response right?"""

from __future__ import annotations

from trinity_compat_rft.answers import is_right, true_answer
from trinity_compat_rft.rewards.dapo import stated_answer

__all__ = ["compute_score"]


def compute_score(solution_str: str, ground_truth: str) -> tuple[float, str]:
    r"""Return 1 or 0, and the answer that was compared with the truth.

    >>> compute_score(r"<think>?</think> \boxed{46}", "46")
    (1.0, '46')
    """
    answer = stated_answer(str(solution_str))
    return float(is_right(answer, truth=true_answer(str(ground_truth)))), answer
