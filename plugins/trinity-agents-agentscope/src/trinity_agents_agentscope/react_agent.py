"""AgentScope's ReActAgent that answers with the fields of a model of pydantic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity_agents_agentscope.chat_models import chat_model
from trinity_agents_agentscope.clients import choosing_freely
from trinity_agents_agentscope.package import imported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from openai import AsyncOpenAI
    from pydantic import BaseModel

__all__ = ["AgentScopeReActAgent"]


class AgentScopeReActAgent:
    """Acts until it calls ``generate_response`` with what is asked for; nothing forces it to.

    Args:
        openai_client: of the model.
        model_name: as the client's API knows it.
        system_prompt: what the agent is to do.
        generate_kwargs: how the model is asked (Any: as the client takes it); None is left out.
        response_structure: what it answers with.
        max_iters: most calls of the model.
        toolkit: AgentScope's tools for it; None: none.

    Attributes:
        agent: AgentScope's own.
    """

    def __init__(  # noqa: PLR0913, PLR0917 -- published
        self,
        openai_client: AsyncOpenAI,
        model_name: str,
        system_prompt: str,
        generate_kwargs: Mapping[str, Any],
        response_structure: type[BaseModel],
        max_iters: int = 10,
        toolkit: Any = None,
    ) -> None:
        given = {name: value for name, value in generate_kwargs.items() if value is not None}
        self.agent_model = chat_model(choosing_freely(openai_client), given)
        self.agent_model.model_name = model_name
        self.agent = imported("agentscope.agent").ReActAgent(
            name="react_agent",
            sys_prompt=system_prompt,
            model=self.agent_model,
            formatter=imported("agentscope.formatter").OpenAIChatFormatter(),
            enable_meta_tool=True,
            toolkit=toolkit,
            max_iters=max_iters,
        )
        self.response_structure = response_structure

    async def reply(self, query: str) -> dict[str, Any]:
        """Return the fields of the answer; an empty dict: there was none."""
        message = imported("agentscope.message").Msg("user", query, role="user")
        reply = await self.agent.reply(message, structured_model=self.response_structure)
        return dict(reply.metadata or {})
