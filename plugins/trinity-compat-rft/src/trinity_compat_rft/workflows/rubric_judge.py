"""Answers that a judge rates by the rubric of the row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.workflows import SimpleWorkflow

from trinity_compat_rft.judging import WithJudge, rating

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.workflows import Task

__all__ = ["RubricJudgeWorkflow"]

SYSTEM_PROMPT = (
    "You answer the questions of a user. Think the question through first, then give the answer."
)
JUDGE_PROMPT = """You rate answers. You get a prompt, a response and a list of rubrics, each with
its weight, and give the response one mark from 1 to 10: how well does it satisfy the rubrics, all
in all? The more rubrics it violates, and the heavier they weigh, the lower the mark.
Begin your reply with a JSON object between "```json" and "```" that has the single key "rating",
a whole number from 1 to 10:
```json
{
"rating": 7
}```"""


class RubricJudgeWorkflow(WithJudge, SimpleWorkflow):
    """The reward is a tenth of the judge's mark; 0 where the judge gives none.

    The judge is ``explorer.auxiliary_models[0]``. The column ``rubric`` holds a list of
    ``{"description": ..., "weight": ...}``.
    """

    needs_reward_fn = False

    def reset(self, task: Task) -> None:
        """Take the question and the rubric of another task; no reward function is asked."""
        self.task = task
        self.raw_task, self.task_desc, self.truth = task.raw_task, task.task_desc, task.truth
        self.reply_prefix = task.format_args.reply_prefix
        self.system_prompt = task.format_args.system_prompt or SYSTEM_PROMPT
        self.rubric = list(task.raw_task.get("rubric") or [])

    def run(self) -> list[Experience]:
        """Return one experience for each answer."""
        responses = self.model.chat(self.format_messages(), **self.rollout_args)
        marks = [self._mark(response.response_text or "") for response in responses]
        success = sum(mark is not None for mark in marks) / max(1, len(marks))
        for place, (response, mark) in enumerate(zip(responses, marks, strict=True)):
            response.reward = 0.0 if mark is None else mark
            response.metrics = {**(response.metrics or {}), "judge_success": success}
            response.eid.run = self.run_id_base + place
        return responses

    def _mark(self, answer: str) -> float | None:
        return rating(self.verdict(JUDGE_PROMPT, self._case(answer), temperature=0.0))

    def _case(self, answer: str) -> str:
        rubrics = "\n".join(
            f"Rubric {number} (weight: {one['weight']}): {one['description']}"
            for number, one in enumerate(self.rubric)
        )
        return (
            f"<prompt>\n{self.task_desc}\n</prompt>\n<response>\n{answer}\n</response>\n"
            f"<rubrics>\n{rubrics or 'There are none.'}\n</rubrics>\nYour rating as JSON:"
        )
