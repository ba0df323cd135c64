"""The reward of DAPO: 1 or -1 for the answer, less for a response that is too long."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.rewards import RewardFn
from trinity.common.rewards.boxed import boxed_answer
from trinity.errors import ConfigError

from trinity_compat_rft.answers import is_right, true_answer

if TYPE_CHECKING:
    from collections.abc import Sized

__all__ = ["MathDAPORewardFn", "stated_answer"]

_ANSWER_LINE = re.compile(r"^\s*Answer\s*:\s*(.+?)\s*$", re.MULTILINE)


class MathDAPORewardFn(RewardFn):
    r"""Scores the last box after the thinking, else the last line ``Answer: ...``, else all of it.

    With the penalty for length, a response of ``L`` tokens gets, with ``M = max_response_length``,
    ``C = cache_length`` and ``f = penalty_factor``::

        0                          for L <= M - C
        -f * (L - (M - C)) / C     up to M
        -f                         beyond

    Args:
        enable_overlong_penalty: whether length counts; the next three are needed then.
        penalty_factor: what the longest responses lose.
        max_response_length: tokens from which on the whole penalty is due.
        cache_length: tokens over which it rises, fewer than ``max_response_length``.

    Raises:
        ConfigError: the penalty is asked for without its three numbers, or they do not fit.

    See Yu et al., "DAPO", https://arxiv.org/abs/2503.14476, equation 13.
    """

    conformance_args: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        enable_overlong_penalty: bool | None = None,  # noqa: FBT001 -- published
        penalty_factor: float | None = None,
        max_response_length: int | None = None,
        cache_length: int | None = None,
    ) -> None:
        self.enable_overlong_penalty = bool(enable_overlong_penalty)
        self.penalty_factor = penalty_factor
        self.max_response_length = max_response_length
        self.cache_length = cache_length
        if self.enable_overlong_penalty:
            self._check_lengths()

    def __call__(  # the published order
        self,
        response: str,
        response_token: Sized | None = None,
        truth: object = None,
        *,
        info: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> dict[str, float]:
        """Return ``accuracy``, 1 or -1, and ``format_score``, 0 or less.

        Args:
            response: the text.
            response_token: the ids of its tokens; needed for the penalty.
            truth: the right answer.
            info: gets ``ground_truth`` and ``extracted_answer``.
            kwargs: not looked at.

        Raises:
            ConfigError: the penalty is asked for, and the workflow does not give the tokens.
        """
        answer = stated_answer(response)
        right = truth is not None and is_right(answer, truth=true_answer(str(truth)))
        if info is not None:
            info |= {"ground_truth": truth, "extracted_answer": answer}
        penalty = self.compute_overlong_penalty(response_token)
        return {"accuracy": 1.0 if right else -1.0, "format_score": penalty}

    def compute_overlong_penalty(self, response_token: Sized | None) -> float:
        """Return 0 or less for the length of a response."""
        if not self.enable_overlong_penalty:
            return 0.0
        if response_token is None:
            raise ConfigError(
                "math_dapo_reward needs the tokens of a response to penalise its length, and this "
                "workflow does not give them. Use math_boxed_workflow, or set "
                "enable_overlong_penalty: false."
            )
        limit, window, factor = self._check_lengths()
        over = len(response_token) - (limit - window)
        return -factor * min(1.0, max(0, over) / window) if over > 0 else 0.0

    def _check_lengths(self) -> tuple[int, int, float]:
        limit, window, factor = self.max_response_length, self.cache_length, self.penalty_factor
        if limit is None or window is None or factor is None:
            raise ConfigError(
                "enable_overlong_penalty needs max_response_length, penalty_factor and "
                "cache_length. Give all three in reward_fn_args."
            )
        if not 0 < window < limit:
            raise ConfigError(
                f"cache_length is {window} and max_response_length {limit}. Let cache_length be "
                f"above 0 and below max_response_length."
            )
        return limit, window, factor


def stated_answer(response: str) -> str:
    """Return what a response gives as its answer, after the thinking."""
    said = response.rpartition("</think>")[2]
    boxed = boxed_answer(said)
    if boxed is not None:
        return boxed
    lines = _ANSWER_LINE.findall(said)
    return lines[-1].strip("$") if lines else said.strip()
