"""AgentScope's ReActAgent looks for answers with a search server's tools; a judge compares.

agent --tool calls--> MCP server (a process of its own) --> the web
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, Field
from trinity.errors import ConfigError

from trinity_agents_agentscope.package import imported
from trinity_agents_agentscope.react_agent import AgentScopeReActAgent
from trinity_agents_agentscope.react_run import ReActRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper
    from trinity.common.workflows import Task

__all__ = ["AgentScopeV1ReactSearchWorkflow"]

SYSTEM_PROMPT = (
    "You find things out on the web. Search until you are sure, and give an answer that is right."
)
JUDGE_PROMPT = """Is the response to the question right? Compare it with the correct answer alone.

Question: {question}

Response: {response}

Correct answer: {truth}

First say in brief where they differ in meaning; other words, other forms and small differences of
numbers do not count. Then end with "Correctness: YES" if the response is right, else with
"Correctness: NO"."""
SERVERS = {  # search_client_type -> the variable that it needs, the words of its command
    "searxng": ("SEARXNG_URL", ("npx", "-y", "mcp-searxng")),
    "tavily": ("TAVILY_API_KEY", ("npx", "-y", "tavily-mcp@latest")),
}
_VERDICT = re.compile(r"Correctness\W*(YES|NO)\b", re.IGNORECASE)


class _Answer(BaseModel):
    result: str = Field(description="The answer to the question.")


class AgentScopeV1ReactSearchWorkflow(ReActRun):
    """The reward is 1 if the judge, ``explorer.auxiliary_models[0]``, finds the answer right.

    ``workflow_args``:
        search_client_type: ``searxng`` or ``tavily``: their MCP servers are started by ``npx``, and
            need ``SEARXNG_URL`` or ``TAVILY_API_KEY`` in the environment.
        search_command: the words of another command that serves tools by MCP over its standard
            input and output; it has this process's environment.
        max_turns: most calls of the model, 10.
        max_model_tokens: a longer experience is left out, 24000.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "search_client_type": "searxng",
        "search_command": None,
        "max_turns": 10,
        "max_model_tokens": 24000,
    }

    def __init__(
        self, *, task: Task, model: ModelWrapper, auxiliary_models: list[Any] | None = None
    ) -> None:
        """Take what a workflow takes.

        Raises:
            ConfigError: there is no judge.
        """
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        if not self.auxiliary_model_wrappers:
            raise ConfigError(
                f"{type(self).__name__} needs auxiliary models: its judge is "
                f"explorer.auxiliary_models[0], and the list is empty. Name a model there."
            )
        self.judge: ModelWrapper = self.auxiliary_model_wrappers[0]

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse what is unknown, and a search server that could not be started.

        Raises:
            ConfigError: AgentScope is missing, or an argument cannot be used.
        """
        super().check_arguments(arguments)
        _command({**cls.defaults, **arguments})

    async def ask(self, model: Any) -> str:  # Any: AgentScope's chat model
        """Return the agent's answer."""
        command, env = _command(self.arguments)
        server = imported("agentscope.mcp").StdIOStatefulClient(
            name="search", command=command[0], args=[*command[1:]], env=env
        )
        await server.connect()
        try:
            toolkit = imported("agentscope.tool").Toolkit()
            await toolkit.register_mcp_client(server)
            agent = AgentScopeReActAgent(
                openai_client=model.client,
                model_name=model.model_name,
                system_prompt=self.task.format_args.system_prompt or SYSTEM_PROMPT,
                generate_kwargs=model.generate_kwargs,
                response_structure=_Answer,
                max_iters=int(self.arguments["max_turns"]),
                toolkit=toolkit,
            )
            answer = await agent.reply(str(self.task.task_desc))
            turns = await agent.agent.memory.size() // 2
        finally:
            await server.close()
        limit = float(self.arguments["max_turns"])
        self.metrics |= {"react_turns": float(turns), "max_turns": limit}
        return str(answer.get("result", ""))

    async def scores(self, answer: str) -> dict[str, float]:
        """Return whether the judge finds the answer right; no answer is not."""
        if not answer:
            return {"accuracy": 0.0}
        asked = JUDGE_PROMPT.format(
            question=self.task.task_desc, response=answer, truth=self.task.truth
        )
        (verdict,) = await self.judge.chat_async([{"role": "user", "content": asked}], n=1)
        found = _VERDICT.findall(verdict.response_text or "")
        return {"accuracy": float(bool(found) and found[-1].upper() == "YES")}

    async def run_async(self) -> list[Experience]:
        """Return an experience for each call of the model that is not too long.

        The run's metrics are at the last that stays.
        """
        limit = int(self.arguments["max_model_tokens"])
        experiences = await super().run_async()
        kept = [one for one in experiences if len(one.tokens) <= limit]
        if kept:
            kept[-1].metrics = {**(experiences[-1].metrics or {}), **(kept[-1].metrics or {})}
        return kept


def _command(arguments: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the words of the search server's command, and its environment.

    Raises:
        ConfigError: there is no such server, or its variable is not set.
    """
    words = arguments["search_command"]
    if words:
        return list(words), dict(os.environ)
    kind = arguments["search_client_type"]
    if kind not in SERVERS:
        raise ConfigError(
            f"search_client_type is {kind!r}. Use one of {', '.join(SERVERS)}, or give the words "
            f"of a command as search_command."
        )
    variable, command = SERVERS[kind]
    value = os.environ.get(variable)
    if not value:
        raise ConfigError(
            f"search_client_type {kind} needs the environment variable {variable}, which is not "
            f"set. Set it, or give the words of another command as search_command."
        )
    return list(command), {variable: value}
