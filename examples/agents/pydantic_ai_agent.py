"""An agent of PydanticAI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

if TYPE_CHECKING:
    from openai import AsyncOpenAI


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def solve(task: dict[str, Any], async_client: AsyncOpenAI) -> float:
    """Let the agent answer; return 1 for the right answer."""
    provider = OpenAIProvider(openai_client=async_client)
    model = OpenAIChatModel(async_client.model_path, provider=provider)
    agent = Agent(model, tools=[add, multiply])
    try:
        result = await agent.run(task["question"], usage_limits=UsageLimits(request_limit=4))
    except AgentRunError:  # a tool that is not there, or too many requests: no answer
        return 0.0
    return float(result.output.strip() == task["answer"])
