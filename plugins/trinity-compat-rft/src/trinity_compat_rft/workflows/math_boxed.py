"""Mathematical questions whose answer stands in a box."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from trinity.common.workflows import SimpleWorkflow
from trinity.common.workflows.task import Task  # noqa: TC002 -- published here too

if TYPE_CHECKING:
    from trinity.common.experience import Experience

__all__ = ["AsyncMathBoxedWorkflow", "MathBoxedWorkflow"]

SYSTEM_PROMPT = "Work through the question step by step and write the final answer in \\boxed{}."
SYSTEM_PROMPT_WITH_THINK = (
    "You solve mathematical questions. Reason first, between <think> and </think>:\n"
    "<think>\n your reasoning </think>\n"
    "Then give the answer in closed form in \\boxed{}."
)


class MathBoxedWorkflow(SimpleWorkflow):
    """Asks once and scores what stands in the last box; a reply that was cut is not trained on.

    Arguments (``workflow_args``):
        with_think: ask for thinking in tags; without it the reward loses ``format_score_coef``.
        format_score_coef: 0.1 unless given.
        use_base: continue a plain text, for a model without chat template.
    """

    default_reward_fn = "math_boxed_reward"

    def reset(self, task: Task) -> None:
        """Take another task with its arguments."""
        super().reset(task)
        self.use_base = bool(task.workflow_args.get("use_base", False))
        self.with_think = bool(task.workflow_args.get("with_think", False))
        self.format_score_coef = float(task.workflow_args.get("format_score_coef", 0.1))
        thinking = {"with_think": self.with_think, "format_score_coef": self.format_score_coef}
        self.reward_call_args = {**thinking, **self.reward_call_args}
        if self.system_prompt is None:
            self.system_prompt = SYSTEM_PROMPT_WITH_THINK if self.with_think else SYSTEM_PROMPT

    def format_prompt(self) -> str:
        """Return the text that a model without chat template continues."""
        system = f"System:{self.system_prompt}\n" if self.system_prompt else ""
        return f"{system}User:\n{self.task_desc}\nAssistant:\n"

    def run(self) -> list[Experience]:
        """Return one experience for each answer."""
        if self.use_base:
            return self.score(self.model.generate([self.format_prompt()], **self.text_args))
        return self.score(self.model.chat(self.format_messages(), **self.rollout_args))

    @property
    def text_args(self) -> dict[str, Any]:
        """Return how a text is continued: as chats are, less what belongs to a chat template."""
        return {name: v for name, v in self.rollout_args.items() if name != "enable_thinking"}

    def score(self, responses: list[Experience]) -> list[Experience]:
        """Return the responses with rewards, and masked where they were cut."""
        for response in super().score(responses):
            if response.truncate_status == "response_truncated":
                response.action_mask = torch.zeros(response.response_length, dtype=torch.bool)
        return responses


class AsyncMathBoxedWorkflow(MathBoxedWorkflow):
    """The awaiting form."""

    async def run_async(self) -> list[Experience]:
        """Return one experience for each answer."""
        if self.use_base:
            prompts = [self.format_prompt()]
            return self.score(await self.model.generate_async(prompts, **self.text_args))
        return self.score(await self.model.chat_async(self.format_messages(), **self.rollout_args))
