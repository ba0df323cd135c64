"""The student answers, the teacher says how likely each of its tokens is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.rewards.calling import NOT_JUDGED
from trinity.common.workflows import SimpleWorkflow
from trinity.errors import ConfigError, JudgementCutError

from trinity_compat_rft.answers import accuracy
from trinity_compat_rft.judging import first_model
from trinity_compat_rft.workflows.math_eval import boxed_messages

if TYPE_CHECKING:
    from torch import Tensor
    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper
    from trinity.common.workflows import Task

__all__ = ["OnPolicyDistillMathWorkflow", "OnPolicyDistillWorkflow"]


class OnPolicyDistillWorkflow(SimpleWorkflow):
    """Gives each answer the teacher's log-probabilities, which the advantage compares with its own.

    The teacher is ``explorer.auxiliary_models[0]``, and has the student's tokenizer. The reward is
    0, and nothing is learned from it. The metric ``kl_divergence`` is the sum over the response of
    the student's less the teacher's log-probabilities, in nats.

    Arguments (``workflow_args``):
        temperature: of the teacher's log-probabilities, 1 unless given.
    """

    needs_reward_fn = False
    conformance_args: ClassVar[dict[str, Any]] = {"num_auxiliary_models": 1}

    def __init__(
        self, *, task: Task, model: ModelWrapper, auxiliary_models: list[Any] | None = None
    ) -> None:
        """Take what a workflow takes.

        Raises:
            ConfigError: there is no auxiliary model.
        """
        self.teacher = first_model(auxiliary_models, name=type(self).__name__, role="teacher")
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)

    def reset(self, task: Task) -> None:
        """Take another question; no reward function is asked."""
        self.task, self.raw_task = task, task.raw_task
        self.task_desc, self.truth = task.task_desc, task.truth
        self.format_args = task.format_args
        self.system_prompt = task.format_args.system_prompt
        self.reply_prefix = task.format_args.reply_prefix
        self.temperature = float(task.workflow_args.get("temperature", 1.0))

    async def run_async(self) -> list[Experience]:
        """Return one experience for each answer."""
        responses = await self.model.chat_async(self.format_messages(), **self.rollout_args)
        opinions = await asyncio.gather(*map(self._opinion, responses))
        for response, opinion in zip(responses, opinions, strict=True):
            response.teacher_logprobs = opinion
            if response.logprobs is not None:
                gap = float((response.logprobs - opinion).sum())
                response.metrics = {**(response.metrics or {}), "kl_divergence": gap}
        return self.score(responses)

    def score(self, responses: list[Experience]) -> list[Experience]:
        """Return the responses with their rewards and the numbers of their runs."""
        for place, response in enumerate(responses):
            response.eid.run = self.run_id_base + place
            try:
                response.reward = self.compute_reward(response)
            except JudgementCutError as error:
                response.info[NOT_JUDGED] = str(error)
        return responses

    def compute_reward(self, response: Experience) -> float:
        """Return what a response is worth beside the teacher's opinion."""
        return 0.0

    async def _opinion(self, response: Experience) -> Tensor:
        """Return the teacher's log-probabilities ``[R]`` of the response's tokens."""
        tokens = response.tokens.tolist()
        self._check_tokenizer(tokens[response.prompt_length :])
        logprobs = await self.teacher.logprobs_async(tokens, temperature=self.temperature)
        return logprobs[response.prompt_length - 1 :]  # the first token of a text has none

    def _check_tokenizer(self, token_ids: list[int]) -> None:
        """Refuse a teacher to whom the tokens are other words, so that nothing false is learned."""
        own, others = (
            model.chat_format.decode(token_ids, skip_special_tokens=False)
            for model in (self.model, self.teacher)
        )
        if own != others:
            raise ConfigError(
                f"the tokens that {self.model.model_name} says {own[:40]!r} with are "
                f"{others[:40]!r} to its teacher {self.teacher.model_name}. Name a teacher in "
                f"explorer.auxiliary_models that has the student's tokenizer."
            )


class OnPolicyDistillMathWorkflow(OnPolicyDistillWorkflow):
    """The same for mathematics: asks for a box; the reward is 1 for the right answer, else 0."""

    def format_messages(self) -> list[dict[str, str]]:
        """Return the question, and that the answer is to stand in a box."""
        return boxed_messages(str(self.task_desc))

    def compute_reward(self, response: Experience) -> float:
        """Return the accuracy, which is a metric too; 0 where the row has no truth."""
        if not self.truth or not response.response_text:
            return 0.0
        right = accuracy(response.response_text, truth=self.truth)
        response.metrics = {**(response.metrics or {}), "accuracy": right}
        return right
