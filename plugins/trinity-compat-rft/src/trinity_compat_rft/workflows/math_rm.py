"""Mathematical questions scored by a reward model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.rewards.calling import call_shape, scores_of
from trinity.common.workflows import SimpleWorkflow

if TYPE_CHECKING:
    from trinity.common.experience import Experience

__all__ = ["AsyncMathRMWorkflow", "MathRMWorkflow"]


class MathRMWorkflow(SimpleWorkflow):
    """Asks once; the reward function, which asks the reward model, may see the whole experience.

    One whose call names ``messages`` or ``ground_truth`` is called as published:
    ``reward_fn(experience, messages, ground_truth=truth)``; any other as in every workflow.
    """

    needs_reward_fn = True

    def reward_scores(self, response: Experience) -> dict[str, float]:
        """Return what the reward model says of a response."""
        shape = call_shape(type(self.reward_fn))
        if shape is None or not shape.named & {"messages", "ground_truth"}:
            return super().reward_scores(response)
        first = (*shape.by_position, *shape.required, "response")[0]
        offered = {
            "messages": response.messages or self.format_messages(),
            "ground_truth": self.truth,
            first: response,
        }
        return scores_of(self.reward_fn, offered=offered, options=self.reward_call_args)


class AsyncMathRMWorkflow(MathRMWorkflow):
    """The awaiting form."""

    async def run_async(self) -> list[Experience]:
        """Return one experience for each answer."""
        return self.score(await self.model.chat_async(self.format_messages(), **self.rollout_args))
