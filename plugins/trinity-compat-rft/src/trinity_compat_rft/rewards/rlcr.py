"""The reward of RLCR: a right answer, and a confidence that fits it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.rewards import RewardFn
from trinity.errors import ConfigError, unknown_name

from trinity_compat_rft.answers import is_right, true_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RLCRRewardFn"]

_WEIGHTS = {
    "format": 0.5,
    "accuracy": 0.5,
    "brier": 0.5,
    "mean_confidence": 1e-5,
    "confidence_one_or_zero": 1e-5,
}
_PARTS = ("think", "answer", "analysis", "confidence")
_FREE = rf"(?:(?!</?(?:{'|'.join(_PARTS)})>).)*"  # a text without any of these tags
_ANY_PART = rf"(?:{_FREE}(?:" + "|".join(f"<{p}>{_FREE}</{p}>" for p in _PARTS) + "))*?"
_END = re.compile(
    _ANY_PART + _FREE + r"\s*".join(f"<{p}>(?P<{p}>{_FREE})</{p}>" for p in _PARTS) + r"\s*",
    re.DOTALL,
)
_LAST_CONFIDENCE = re.compile(rf"<confidence>({_FREE})</confidence>", re.DOTALL)


class RLCRRewardFn(RewardFn):
    """Scores a response that ends with thoughts, answer, analysis and confidence, each in its tag.

    With ``a`` 1 for the right answer, else 0, and the stated confidence ``q`` from 0 to 1, the
    parts of the reward, each times its weight, are

    * ``format``: 1 for ``<think>..</think><answer>..</answer><analysis>..</analysis>
      <confidence>q</confidence>`` at the end, each tag closed before the next is opened;
    * ``accuracy``: ``a``, and ``brier``: ``1 - (a - q) ** 2``, both 0 without the format;
    * ``mean_confidence``: the last ``q`` that is stated anywhere, else 0;
    * ``confidence_one_or_zero``: 1 where it is below 0.01 or above 0.99.

    Args:
        weights: of all five parts; 0.5 for the first three and 1e-5 for the others.

    Raises:
        ConfigError: a weight is missing, unknown, or no finite number.

    See Damani et al., "Beyond Binary Rewards", https://arxiv.org/abs/2507.16806.
    """

    conformance_args: ClassVar[dict[str, Any]] = {}

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self.weights = dict(_WEIGHTS if weights is None else weights)
        for name, weight in self.weights.items():
            if name not in _WEIGHTS:
                raise ConfigError(unknown_name("weight of rlcr_reward", name, _WEIGHTS))
            if isinstance(weight, bool) or not isinstance(weight, (int, float)):
                raise ConfigError(f"the weight {name} of rlcr_reward is {weight!r}; give a number.")
            if not math.isfinite(weight):
                raise ConfigError(f"the weight {name} of rlcr_reward is {weight}; it is infinite.")
        missing = [name for name in _WEIGHTS if name not in self.weights]
        if missing:
            raise ConfigError(f"rlcr_reward lacks the weights {', '.join(missing)}; give all five.")

    def __call__(  # the published order
        self, response: str, prompt: str | None = None, truth: str | None = None, **kwargs: Any
    ) -> dict[str, float]:
        """Return the five weighted parts.

        Raises:
            RewardError: Math-Verify failed: that is not taken for a wrong answer.
        """
        scores = dict.fromkeys(_WEIGHTS, 0.0)
        stated = [_confidence(text) for text in _LAST_CONFIDENCE.findall(response)][-1:]
        if stated and stated[0] is not None:
            scores["mean_confidence"] = stated[0]
            scores["confidence_one_or_zero"] = float(not 0.01 <= stated[0] <= 0.99)
        found = _END.fullmatch(response)
        confidence = _confidence(found["confidence"]) if found else None
        if found and confidence is not None:
            scores["format"] = 1.0
            if truth is not None:
                right = float(is_right(found["answer"].strip(), truth=true_answer(str(truth))))
                scores |= {"accuracy": right, "brier": 1.0 - (right - confidence) ** 2}
        return {name: self.weights[name] * score for name, score in scores.items()}


def _confidence(text: str) -> float | None:
    try:
        value = float(text.strip())
    except ValueError:
        return None
    return value if 0.0 <= value <= 1.0 else None
