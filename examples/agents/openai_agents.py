"""An agent of the OpenAI Agents SDK, by its Responses API or by chat completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from agents.exceptions import AgentsException

if TYPE_CHECKING:
    from agents import Model
    from openai import AsyncOpenAI

UNTRACED = RunConfig(tracing_disabled=True)  # traces go to OpenAI


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@function_tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def solve(task: dict[str, Any], async_client: AsyncOpenAI) -> float:
    """Ask by the Responses API, the SDK's own choice."""
    name = async_client.model_path
    return await rewarded(task, OpenAIResponsesModel(name, openai_client=async_client))


async def solve_by_chat(task: dict[str, Any], async_client: AsyncOpenAI) -> float:
    """Ask by chat completions."""
    name = async_client.model_path
    return await rewarded(task, OpenAIChatCompletionsModel(name, openai_client=async_client))


async def rewarded(task: dict[str, Any], model: Model) -> float:
    """Let the agent answer; return 1 for the right answer."""
    agent = Agent(name="calculator", tools=[add, multiply], model=model)
    try:
        result = await Runner.run(agent, task["question"], max_turns=4, run_config=UNTRACED)
    except AgentsException:  # a tool that is not there, or too many turns: no answer
        return 0.0
    return float(str(result.final_output).strip() == task["answer"])
