"""Which tools a call offers, and whether the reply must use one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.ports import Structure
from trinity.endpoint.fields import items
from trinity.endpoint.refusal import bad_field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.models.exchange import Calls


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolChoice:
    """The tools of a call."""

    tools: tuple[dict[str, Any], ...]
    calls: Calls = "read"
    structure: Structure | None = None  # what the reply must match


def tool_choice(body: Mapping[str, Any]) -> ToolChoice:
    """Return what a body says of tools.

    Raises:
        Refusal: a tool cannot be read, or the choice cannot be honoured.
    """
    tools = tuple(_checked(one, place=place) for place, one in enumerate(items(body, "tools")))
    wanted = body.get("tool_choice")
    if wanted is None or wanted == "auto":
        return ToolChoice(tools=tools)
    if wanted == "none":
        return ToolChoice(tools=tools, calls="text")
    return ToolChoice(tools=tools, calls="forced", structure=_forced(wanted, tools))


def _checked(tool: dict[str, Any], *, place: int) -> dict[str, Any]:
    kind, function = tool.get("type", "function"), tool.get("function")
    if kind != "function":
        raise bad_field(f"tools[{place}]", f"is of type {kind!r}; give tools of type function.")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise bad_field(f"tools[{place}].function", "needs a name; give the tool's name.")
    return {**tool, "type": "function"}


def _forced(wanted: Any, tools: tuple[dict[str, Any], ...]) -> Structure:  # Any: a client's
    """Return that one of the tools is called: the one that is named, or any."""
    name = None
    if isinstance(wanted, dict):
        function = wanted.get("function")
        name = function.get("name") if isinstance(function, dict) else None
    if wanted != "required" and not isinstance(name, str):
        raise bad_field("tool_choice", "is unknown; give auto, none, required or a function.")
    offered = [tool["function"] for tool in tools]
    chosen = [one for one in offered if name is None or one["name"] == name]
    if not chosen:
        known = ", ".join(one["name"] for one in offered) or "none"
        raise bad_field("tool_choice", f"names no tool of this call; it offers {known}.")
    return Structure(kind="json_schema", text=json.dumps({"anyOf": [_call(f) for f in chosen]}))


def _call(function: dict[str, Any]) -> dict[str, Any]:
    arguments = function.get("parameters") or {"type": "object"}
    return {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
