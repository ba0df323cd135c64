"""Environments of tools (MCP): what can be called, and what a call answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trinity.errors import EnvError

if TYPE_CHECKING:
    from trinity_envs_openenv.observation import Observation

__all__ = ["LIST_TOOLS", "answer_of", "call_of", "descriptions"]

LIST_TOOLS = {"type": "list_tools"}  # an action that such an environment takes


def call_of(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the action that calls a tool."""
    return {"type": "call_tool", "tool_name": name, "arguments": dict(arguments)}


def descriptions(observation: Observation, *, url: str) -> list[dict[str, Any]]:
    """Return the tools as chat templates read them.

    Args:
        observation: the answer to ``LIST_TOOLS``.
        url: of the server, for the message.

    Raises:
        EnvError: there are none.
    """
    listed = observation.fields.get("tools")
    if not isinstance(listed, list) or not listed:
        raise EnvError(
            f"the environment at {url} lists no tools. Leave workflow_args.tools out, and say with "
            f"workflow_args.action what a reply does."
        )
    return [_description(tool) for tool in listed]


def answer_of(observation: Observation) -> str:
    """Return what the model sees of a call's result."""
    error = observation.fields.get("error")
    if error:
        message = error.get("message", error) if isinstance(error, Mapping) else error
        return f"error: {message}"
    result = observation.fields.get("result")
    if isinstance(result, Mapping):
        texts = _texts(result.get("content"))
        result = texts if texts is not None else result.get("data", result)
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _description(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool.get("input_schema") or tool.get("inputSchema") or {"type": "object"}
    function = {
        "name": tool.get("name", ""),
        "description": tool.get("description") or "",
        "parameters": schema,
    }
    return {"type": "function", "function": function}


def _texts(content: Any) -> str | None:  # Any: of a tool's result; None: not texts alone
    if not isinstance(content, list) or not content:
        return None
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
    return "\n".join(texts) if all(isinstance(text, str) for text in texts) else None
