"""The rewards of the tasks (``grpo_tasks/task.py``), as components."""

from __future__ import annotations

from typing import Any

from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn


@REWARD_FUNCTIONS.register_module("reward_of_digits")
class DigitShareReward(RewardFn):
    """The share of the first eight characters that are the digit."""

    def __call__(  # type: ignore[override]  # the keywords it wants, by name
        self, *, response: str, truth: str, **kwargs: Any
    ) -> dict[str, float]:
        """Return ``share``, from 0 to 1."""
        return {"share": response[:8].count(truth) / 8}


@REWARD_FUNCTIONS.register_module("reward_of_sorting")
@REWARD_FUNCTIONS.register_module("reward_of_sums")
class RightAnswerReward(RewardFn):
    """1 for the answer and nothing else."""

    def __call__(  # type: ignore[override]  # the keywords it wants, by name
        self, *, response: str, truth: str, **kwargs: Any
    ) -> dict[str, float]:
        """Return ``is_right``, 0 or 1."""
        return {"is_right": float(response.strip() == truth)}
