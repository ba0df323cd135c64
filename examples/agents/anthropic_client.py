"""The same agent by Anthropic's client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anthropic import Anthropic

if TYPE_CHECKING:
    from trinity.common.ports import Endpoint

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
OFFERED = [
    {"name": "add", "description": "Add two numbers.", "input_schema": NUMBERS},
    {"name": "multiply", "description": "Multiply two numbers.", "input_schema": NUMBERS},
]


def solve(task: dict[str, Any], endpoint: Endpoint) -> float:
    """Let the model use its tools until it answers; return 1 for the right answer."""
    url = endpoint.env["ANTHROPIC_BASE_URL"]
    messages: list[Any] = [{"role": "user", "content": task["question"]}]
    with Anthropic(base_url=url, api_key=endpoint.key) as client:
        for _ in range(4):
            reply = client.messages.create(
                model=endpoint.model, max_tokens=512, messages=messages, tools=OFFERED
            )
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                return float(reply.content[-1].text.strip() == task["answer"])
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": used(call)}
                for call in calls
            ]
            messages.append({"role": "assistant", "content": reply.content})
            messages.append({"role": "user", "content": results})
    return 0.0


def used(call: Any) -> str:
    """Return what a tool says to the arguments that the model chose."""
    try:
        return str(TOOLS[call.name](**call.input))
    except (KeyError, TypeError) as error:
        return f"error: {error}"
