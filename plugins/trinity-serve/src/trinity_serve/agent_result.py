"""What an agent returns, read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trinity.common.workflows.workflow import number_of
from trinity.errors import WorkflowError

__all__ = ["AgentResult", "result_of"]

_REMEDY = "Return a finite number, a dict with 'reward', or a reward for each agent."


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentResult:
    """The rewards and metrics of a run."""

    reward: float | None = None  # None: the reward function says it
    by_agent: Mapping[str, float] = field(default_factory=dict)  # in place of it
    metrics: Mapping[str, float] = field(default_factory=dict)
    not_judged: str = ""  # why there is no reward after all


def result_of(returned: Any) -> AgentResult:  # Any: of a user's own code
    """Return what an agent's value means.

    Raises:
        WorkflowError: it holds what is no finite number.

    >>> result_of({"reward": 1, "turns": 3}).metrics
    {'turns': 3.0}
    >>> result_of({"planner": 1, "critic": 0}).by_agent
    {'planner': 1.0, 'critic': 0.0}
    """
    if returned is None:
        return AgentResult()
    if not isinstance(returned, Mapping):
        return AgentResult(reward=_number(returned, what="what the agent returned"))
    if "reward" not in returned:
        return AgentResult(by_agent=_numbers(returned, what="the agent's result"))
    further = {name: value for name, value in returned.items() if name != "reward"}
    metrics = _numbers(further, what="the agent's result")
    reward = returned["reward"]
    if isinstance(reward, Mapping):
        return AgentResult(by_agent=_numbers(reward, what="the agent's reward"), metrics=metrics)
    if reward is None:
        return AgentResult(metrics=metrics)
    return AgentResult(reward=_number(reward, what="the agent's reward"), metrics=metrics)


def _numbers(values: Mapping[Any, Any], *, what: str) -> dict[str, float]:
    return {str(name): _number(value, what=f"{what}[{name!r}]") for name, value in values.items()}


def _number(value: Any, *, what: str) -> float:
    number = number_of(value, what=what, remedy=_REMEDY)
    if not math.isfinite(number):
        raise WorkflowError(f"{what} is {number}. {_REMEDY}")
    return number
