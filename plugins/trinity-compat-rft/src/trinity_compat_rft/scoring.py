"""Call a reward function as Trinity-RFT's workflows call it."""

from __future__ import annotations

import inspect
import math
from functools import cache
from typing import TYPE_CHECKING, Any

from trinity.common.rewards.failure import reward_failure
from trinity.errors import TrinityError, WorkflowError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.rewards import RewardFn

__all__ = ["give_reward", "names_any", "scores_of"]


def scores_of(reward_fn: RewardFn, *positional: Any, **named: Any) -> dict[str, float]:
    """Return the named scores that a reward function gives.

    Args:
        reward_fn: the function.
        *positional: arguments by position (Any: the function's own types).
        **named: arguments by name; those that its signature does not name are left out.

    Raises:
        WorkflowError: it raised, or a score is no finite number.
    """
    wanted, takes_any = _keywords_of(type(reward_fn))
    given = {name: value for name, value in named.items() if takes_any or name in wanted}
    function: Any = reward_fn  # a published one takes arguments by position
    try:
        parts: Mapping[str, Any] = function(*positional, **given)
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
    return bool(_keywords_of(type(reward_fn))[0] & names)


@cache
def _keywords_of(cls: type) -> tuple[frozenset[str], bool]:
    """Return the names of its call's parameters, and whether it takes any other."""
    parameters = inspect.signature(cls.__call__).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return frozenset(parameter.name for parameter in parameters), takes_any
