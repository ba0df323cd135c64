"""Evaluation of mathematics: one answer to each question, and whether it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows import Workflow
from trinity.errors import BadTaskError, ConfigError

from trinity_compat_rft.answers import accuracy

if TYPE_CHECKING:
    from trinity.common.experience import Experience

__all__ = ["AsyncMathEvalWorkflow", "MathEvalWorkflow", "boxed_messages"]

SAMPLING: dict[str, Any] = {"n": 1, "temperature": 0.6, "top_p": 0.8}


class MathEvalWorkflow(Workflow):
    """Asks for an answer in a box and gives the metric ``accuracy``; the reward is always 0.

    The question stands in the column ``question``, the truth where ``response_key`` says. It is
    asked at temperature 0.6 and top_p 0.8, whatever ``rollout_args`` say, as published.
    """

    conformance_args: ClassVar[dict[str, Any]] = {"is_eval": True}

    def run(self) -> list[Experience]:
        """Return the answer with its accuracy."""
        return self.judged(self.model.chat(self.format_messages(), **SAMPLING))

    def format_messages(self) -> list[dict[str, str]]:
        """Return the question.

        Raises:
            BadTaskError: the row has no column ``question``.
            ConfigError: the rows are to be trained on.
        """
        if not self.task.is_eval:
            raise ConfigError(
                f"{type(self).__name__} gives no reward, so nothing can be learned from it. Name "
                f"it in eval_tasksets, and math_boxed_workflow for the rows to train on."
            )
        if "question" not in self.task.raw_task:
            keys = ", ".join(map(str, self.task.raw_task))
            raise BadTaskError(
                f"{self.task.origin}: {type(self).__name__} reads the column 'question'; the row "
                f"has {keys}. Rename the column."
            )
        return boxed_messages(str(self.task.raw_task["question"]))

    def judged(self, responses: list[Experience]) -> list[Experience]:
        """Return the responses with their accuracy, where the row has a truth."""
        for response in responses:
            response.reward = 0.0
            if self.task.truth is not None:
                right = accuracy(response.response_text or "", truth=self.task.truth)
                response.metrics = {**(response.metrics or {}), "accuracy": right}
        return responses


class AsyncMathEvalWorkflow(MathEvalWorkflow):
    """The awaiting form."""

    async def run_async(self) -> list[Experience]:
        """Return the answer with its accuracy."""
        return self.judged(await self.model.chat_async(self.format_messages(), **SAMPLING))


def boxed_messages(question: str) -> list[dict[str, str]]:
    """Return the messages that ask for steps and a box."""
    asked = f"{question}\nReason step by step, and give the final answer in \\boxed{{}}."
    return [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": asked},
    ]
