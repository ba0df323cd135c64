"""Step-wise workflows whose methods are named ``step_async`` and ``reward_async``."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from trinity.common.workflows.step_wise_workflow import (
    RewardPropagationWorkflow,
    StepWiseRewardWorkflow,
)

if TYPE_CHECKING:
    from trinity.common.experience import Experience

__all__ = ["AsyncRewardPropagationWorkflow", "AsyncStepWiseRewardWorkflow"]


class AsyncStepWiseRewardWorkflow(StepWiseRewardWorkflow):
    """Gives each step its own reward; both are awaited."""

    @abstractmethod
    async def step_async(self, step_num: int) -> bool:
        """Act once; return whether there is a next step."""

    @abstractmethod
    async def reward_async(self, exps: list[Experience], step_num: int) -> float:
        """Return the reward of a step."""

    async def step(self, step_num: int) -> bool:
        """Return what ``step_async`` does."""
        return await self.step_async(step_num)

    async def reward(self, exps: list[Experience], step_num: int = 0) -> Any:
        """Return what ``reward_async`` does (Any: a number)."""
        return await self.reward_async(exps, step_num)


class AsyncRewardPropagationWorkflow(RewardPropagationWorkflow):
    """Gives all steps the reward of the run; both are awaited."""

    @abstractmethod
    async def step_async(self, step_num: int) -> bool:
        """Act once; return whether there is a next step."""

    @abstractmethod
    async def reward_async(self, exps: list[Experience]) -> float:
        """Return the reward of the run."""

    async def step(self, step_num: int) -> bool:
        """Return what ``step_async`` does."""
        return await self.step_async(step_num)

    async def reward(self, exps: list[Experience]) -> Any:
        """Return what ``reward_async`` does (Any: a number)."""
        return await self.reward_async(exps)
