"""Workflows that talk with an environment: the whole conversation is one experience."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

from trinity.common.workflows.of_task import OfTask, max_env_steps
from trinity.common.workflows.workflow import Workflow, reward_of
from trinity.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.models.chat_format import Message

__all__ = ["MultiTurnWorkflow"]

CONTEXT_FILLED = "context_filled:sum"  # in metrics: the workflow's reward was replaced by 0


class MultiTurnWorkflow(Workflow):
    """Asks the model again and again about one growing list of messages.

    A subclass defines ``run``: it asks with :meth:`get_model_response_text`, appends the text as an
    ``assistant`` message, and makes the conversation an experience at the end with
    :meth:`process_messages_to_experience`. The list may be built anew for each turn: messages are
    known by their content.

    Attributes:
        task_desc: what the prompt key of the row holds.
        max_env_steps: ``workflow_args.max_env_steps``, else 30.
    """

    task_desc: OfTask[str | None] = OfTask(lambda task: task.task_desc)
    max_env_steps: OfTask[int] = OfTask(max_env_steps)

    def get_model_response_text(self, messages: Sequence[Message], **options: Any) -> str:
        """Return what the model says next, asked as the task's ``rollout_args`` say.

        Args:
            messages: the conversation so far.
            **options: of ``model.chat``, such as ``temperature`` (Any: each option's own type).

        Raises:
            ModelError: the engine failed.
        """
        return self.model.chat(messages, **options)[0].response_text or ""

    async def get_model_response_text_async(
        self, messages: Sequence[Message], **options: Any
    ) -> str:
        """Return what the model says next; see :meth:`get_model_response_text`."""
        return (await self.model.chat_async(messages, **options))[0].response_text or ""

    def process_messages_to_experience(
        self,
        messages: Sequence[Message],
        reward: float,
        info: Mapping[str, Any] | None = None,
        truncate_status: str | None = None,
    ) -> Experience:
        """Return the conversation as one experience.

        Its token ids and log-probabilities are those that the engine gave for the model's replies;
        every other token is masked. Where the chat template rewrites earlier messages (thinking
        that is removed), it holds the last unbroken chain of replies; the runner adds the earlier
        chains to the run with the same reward.

        Args:
            messages: all that was said, the model's replies as they were.
            reward: of the whole run; a conversation that fills ``model.max_model_len`` has 0.
            info: the workflow's own data; its numbers become metrics.
            truncate_status: ``prompt_truncated`` or ``response_truncated``, where nothing was cut.

        Raises:
            WorkflowError: none of the messages is a reply of this run's model.
        """
        experience = self.model.convert_messages_to_experience(messages)
        mask = experience.action_mask
        if (mask is None or not mask.any()) and experience.truncate_status is None:
            raise WorkflowError(
                "none of the messages is a reply of this run's model, so nothing could be learned. "
                "Append each reply as it was: {'role': 'assistant', 'content': the text}."
            )
        score = reward_of(reward, what="the reward of process_messages_to_experience")
        experience.info |= info or {}
        experience.metrics |= {k: float(v) for k, v in (info or {}).items() if isinstance(v, Real)}
        if experience.reward is None:
            experience.reward = score
        elif score:
            experience.metrics[CONTEXT_FILLED] = 1.0
        experience.truncate_status = experience.truncate_status or truncate_status
        return experience

    async def process_messages_to_experience_async(
        self,
        messages: Sequence[Message],
        reward: float,
        info: Mapping[str, Any] | None = None,
        truncate_status: str | None = None,
    ) -> Experience:
        """Return the conversation as one experience; see the other method."""
        return self.process_messages_to_experience(messages, reward, info, truncate_status)
