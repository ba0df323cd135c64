"""Mathematical questions whose answers a judge compares with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.workflows import MathWorkflow

from trinity_compat_rft.judging import WithJudge, comparison, gold_reward, listed_scores

if TYPE_CHECKING:
    from trinity.common.experience import Experience

__all__ = ["AsyncMathRULERWorkflow", "MathRULERWorkflow"]


class MathRULERWorkflow(WithJudge, MathWorkflow):
    """The reward is the judge's score, from 0 to 1; all are 0 where the judge gives no list.

    The judge is ``explorer.auxiliary_models[0]``. The reward function (``math_reward`` unless
    named) is not learned from: its scores and their sum, ``gold_reward``, are metrics.
    """

    def run(self) -> list[Experience]:
        """Return one experience for each answer."""
        responses = self.measured(self.model.chat(self.format_messages(), **self.rollout_args))
        verdict = self.judge.chat(self._question(responses), n=1)
        return self.judged(responses, verdict[0].response_text or "")

    def measured(self, responses: list[Experience]) -> list[Experience]:
        """Return the responses with what the reward function says, as metrics."""
        for place, response in enumerate(responses):
            gold_reward(response, self.reward_scores(response))
            response.eid.run = self.run_id_base + place
        return responses

    def judged(self, responses: list[Experience], reply: str) -> list[Experience]:
        """Return the responses with the scores in the judge's reply as rewards."""
        scores = listed_scores(reply, num=len(responses))
        if scores is None:
            self.logger.info("the judge gave no list of %d scores: all are 0.", len(responses))
        for place, response in enumerate(responses):
            response.reward = 0.0 if scores is None else scores[place]
            response.metrics["judge_success"] = float(scores is not None)
        return responses

    def _question(self, responses: list[Experience]) -> list[dict[str, str]]:
        return comparison(self.task_desc, [one.response_text or "" for one in responses])


class AsyncMathRULERWorkflow(MathRULERWorkflow):
    """The awaiting form."""

    async def run_async(self) -> list[Experience]:
        """Return one experience for each answer."""
        answers = await self.model.chat_async(self.format_messages(), **self.rollout_args)
        responses = self.measured(answers)
        verdict = await self.judge.chat_async(self._question(responses), n=1)
        return self.judged(responses, verdict[0].response_text or "")
