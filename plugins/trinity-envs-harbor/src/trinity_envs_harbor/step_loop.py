"""Go through the steps of a task in one environment, each verified before the next begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity_envs_harbor.rewards import falls_short

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity_envs_harbor.environment import TaskEnvironment
    from trinity_envs_harbor.task import TaskStep

__all__ = ["step_rewards"]


def step_rewards(
    environment: TaskEnvironment, act: Callable[[TaskStep], None]
) -> list[dict[str, float]]:
    """Return what the verifier of each step says; none comes after one below its ``min_reward``.

    Args:
        environment: shared by the steps.
        act: what an agent does in a step.

    Raises:
        EnvError: a step could not begin, or its verifier gave no finite reward.
    """
    found: list[dict[str, float]] = []
    for step in environment.task.steps:
        environment.begin(step, is_first=not found)
        act(step)
        found.append(environment.verify(step))
        if falls_short(found[-1], step.min_reward):
            break
    return found
