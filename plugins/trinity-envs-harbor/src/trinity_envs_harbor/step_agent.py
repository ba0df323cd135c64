"""The agent of a rollout: it acts in each step of a task, and what it did becomes experiences."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trinity.errors import WorkflowError

from trinity_envs_harbor.bash_agent import BASH_TOOL, BashAgent
from trinity_envs_harbor.command_agent import run_command_agent

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper
    from trinity.common.models.recorded_calls import RecordedCall
    from trinity.common.ports import Endpoint

    from trinity_envs_harbor.environment import TaskEnvironment
    from trinity_envs_harbor.settings import HarborSettings
    from trinity_envs_harbor.task import TaskStep

__all__ = ["StepAgent"]

logger = logging.getLogger("trinity.harbor")


class StepAgent:
    """Lets the model, or a command that asks the model, work on one step after the other.

    Args:
        model: in training.
        environment: of all steps.
        settings: which agent.
        system: the system prompt of agent ``bash``; "": none.

    Attributes:
        metrics: sums over the steps so far.
    """

    def __init__(
        self,
        model: ModelWrapper,
        environment: TaskEnvironment,
        settings: HarborSettings,
        *,
        system: str = "",
    ) -> None:
        self.metrics: dict[str, float] = {}
        self._model, self._environment, self._settings = model, environment, settings
        self._system = system
        self._chats: list[list[dict[str, Any]]] = []  # of agent `bash`
        self._calls: list[Experience] = []  # of agent `command`
        self._failures: list[str] = []
        self._endpoint: Endpoint | None = None

    def act(self, step: TaskStep) -> None:
        """Let the agent work on one step.

        Raises:
            EnvError: the sandbox could not be built, or the run was stopped.
            WorkflowError: a command asked nothing.
        """
        if self._settings.agent == "bash":
            self._bash(step)
        else:
            self._command(step)

    def experiences(self) -> list[Experience]:
        """Return what is trained: of a command, each call; else each conversation."""
        if self._failures:
            self._calls[-1].info["agent_failure"] = "\n".join(self._failures)
        tools = [BASH_TOOL] if self._settings.action == "tools" else None
        for messages in self._chats:
            while messages[-1]["role"] == "tool":  # nobody answered them
                messages.pop()
        convert = self._model.convert_messages_to_experience
        return self._calls or [convert(messages, tools) for messages in self._chats]

    def _command(self, step: TaskStep) -> None:
        self._endpoint = self._endpoint or self._model.endpoint()
        try:
            end = run_command_agent(self._environment, step, self._settings, self._endpoint)
        finally:
            self._model.check_served()  # what the agent met is the engine's failure
        calls = self._model.extract_experience_from_history()
        self._calls += calls
        if not self._calls:
            told = "no call of the agent reached the model. Let it use OPENAI_BASE_URL."
            raise WorkflowError(f"{told} {end.failure}".strip())
        if end.failure:
            logger.warning("%s It is verified all the same.", end.failure)
            self._failures.append(end.failure)
        self._add(calls=len(calls), late=end.is_late, failed=bool(end.failure))

    def _bash(self, step: TaskStep) -> None:
        messages = self._messages()
        messages.append({"role": "user", "content": step.instruction.strip()})
        agent = BashAgent(environment=self._environment, step=step, settings=self._settings)
        if self._settings.action == "tools":
            agent.with_tools(messages, self._asked)
        else:
            agent.with_texts(messages, self._text)
        self._add(replies=agent.num_replies, commands=agent.num_commands, late=agent.is_late)

    def _messages(self) -> list[dict[str, Any]]:
        """Return a new conversation, or the one that goes on."""
        if not self._chats or not self._settings.resume_trajectory:
            first = [{"role": "system", "content": self._system}] if self._system else []
            self._chats.append(list[dict[str, Any]](first))
        return self._chats[-1]

    def _add(self, **counts: float) -> None:
        for name, count in counts.items():
            key = f"agent/{name}"
            self.metrics[key] = self.metrics.get(key, 0.0) + float(count)

    def _text(self, messages: list[dict[str, Any]]) -> str:
        return self._model.chat(messages)[0].response_text or ""

    def _asked(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> RecordedCall:
        """Return the model's reply, whose tool calls are read out of it."""
        exchanges = self._model.exchanges
        call = exchanges.send(exchanges.prompt(messages, tools=tools))
        try:
            completions = call.future.result(self._model.settings.request_timeout_s)
        except TimeoutError as error:
            call.future.cancel()
            raise self._model.no_answer() from error
        (reply,) = exchanges.replies(call, completions)
        exchanges.keep(reply)
        return reply
