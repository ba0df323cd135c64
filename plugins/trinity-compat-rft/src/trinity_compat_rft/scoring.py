"""What Trinity-RFT's workflows do with a reward function beside what those of the core do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trinity.common.rewards.calling import call_shape
from trinity.common.rewards.failure import reward_failure
from trinity.errors import TrinityError, WorkflowError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.rewards import RewardFn

__all__ = ["give_reward", "names_any", "scores_of_experience"]


def scores_of_experience(
    reward_fn: RewardFn,
    response: Experience,
    messages: list[dict[str, str]],
    *,
    truth: object,
    options: Mapping[str, Any],
) -> dict[str, float]:
    """Return what ``reward_fn(response, messages, ground_truth=truth, **options)`` gives.

    Raises:
        WorkflowError: it raised, or a score is no finite number.
    """
    function: Any = reward_fn  # called by position, as published
    try:
        parts = function(response, messages, ground_truth=truth, **options)
        scores = {name: float(value) for name, value in parts.items()}
        if not all(map(math.isfinite, scores.values())):
            raise ValueError(f"it gave {scores}")
    except TrinityError:
        raise
    except Exception as error:  # the boundary to a plugin's reward function
        raise WorkflowError(reward_failure(reward_fn, error)) from error
    return scores


def give_reward(response: Experience, scores: Mapping[str, float], *, run: int) -> None:
    """Set the sum of the scores as reward, each score as a metric, and the number of the run."""
    response.metrics = {**(response.metrics or {}), **scores}
    response.reward = sum(scores.values(), 0.0)
    response.eid.run = run


def names_any(reward_fn: RewardFn, names: set[str]) -> bool:
    """Return whether the call of a reward function names one of these parameters."""
    shape = call_shape(type(reward_fn))
    return shape is not None and bool(shape.named & names)
