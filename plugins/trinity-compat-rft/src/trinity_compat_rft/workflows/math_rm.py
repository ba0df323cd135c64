"""Mathematical questions scored by a reward model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.rewards.calling import scores_of
from trinity.common.workflows import SimpleWorkflow

from trinity_compat_rft.scoring import give_reward, names_any, scores_of_experience

if TYPE_CHECKING:
    from trinity.common.experience import Experience

__all__ = ["AsyncMathRMWorkflow", "MathRMWorkflow"]


class MathRMWorkflow(SimpleWorkflow):
    """Asks once; the reward function, which asks the reward model, may see the whole experience.

    One whose call names ``messages`` or ``ground_truth`` is called as published:
    ``reward_fn(experience, messages, ground_truth=truth)``; any other as in every workflow.
    """

    needs_reward_fn = True

    def run(self) -> list[Experience]:
        """Return one experience for each answer."""
        messages = self.format_messages()
        return self.judged(self.model.chat(messages, **self.rollout_args), messages)

    def judged(
        self, responses: list[Experience], messages: list[dict[str, str]]
    ) -> list[Experience]:
        """Return the responses with the scores of the reward model."""
        for place, response in enumerate(responses):
            scores = self._scores(response, messages)
            give_reward(response, scores, run=self.run_id_base + place)
        return responses

    def _scores(self, response: Experience, messages: list[dict[str, str]]) -> dict[str, float]:
        reward_fn, options = self.reward_fn, self.reward_call_args
        if names_any(reward_fn, {"messages", "ground_truth"}):
            truth = self.truth
            return scores_of_experience(reward_fn, response, messages, truth=truth, options=options)
        offered = {
            "response": response.response_text or "",
            "truth": self.truth,
            "prompt": self.task_desc,
            "task": self.task,
        }
        return scores_of(reward_fn, offered=offered, options=options)


class AsyncMathRMWorkflow(MathRMWorkflow):
    """The awaiting form."""

    async def run_async(self) -> list[Experience]:
        """Return one experience for each answer."""
        messages = self.format_messages()
        return self.judged(await self.model.chat_async(messages, **self.rollout_args), messages)
