"""Messages as OpenAI's clients send them, made into messages that chat templates take."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trinity_serve.endpoint.fields import bad_field, items, known_word, text

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROLES = ("system", "developer", "user", "assistant", "tool")
_KEPT = ("name", "refusal", "tool_call_id")
_REASONING = ("reasoning_content", "reasoning")
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


def canonical_messages(body: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the messages of a body.

    Raises:
        Refusal: there are none, or one cannot be read.
    """
    messages = items(body, "messages")
    if not messages:
        raise bad_field("messages", "is empty; send at least one message.")
    return tuple(_message(one, path=f"messages[{n}]") for n, one in enumerate(messages))


def _message(given: Mapping[str, Any], *, path: str) -> dict[str, Any]:
    role = known_word(given.get("role"), f"{path}.role", _ROLES)
    message: dict[str, Any] = {"role": "system" if role == "developer" else role}
    message["content"] = joined_text(given.get("content"), path=f"{path}.content")
    for name in _KEPT:
        value = text(given, name, path=f"{path}.{name}")
        if value is not None:
            message[name] = value
    if role == "assistant":
        message |= _thoughts(given, path=path)
        calls = items(given, "tool_calls", path=f"{path}.tool_calls")
        if calls:
            message["tool_calls"] = [
                _call(call, path=f"{path}.tool_calls[{n}]") for n, call in enumerate(calls)
            ]
    return message


def joined_text(content: Any, *, path: str) -> str:  # Any: a client's
    """Return the text of a content: a text, a list of text parts, or nothing.

    Raises:
        Refusal: it holds what is no text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad_field(path, "must be a text or a list of text parts.")
    return "\n".join(_part(part, path=f"{path}[{n}]") for n, part in enumerate(content))


def _part(part: Any, *, path: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _TEXT_PARTS:
        raise bad_field(
            path,
            f"is a part of type {kind!r}; this model reads texts only, so send parts of type text.",
        )
    return text(part, _TEXT_PARTS[kind], path=f"{path}.{_TEXT_PARTS[kind]}") or ""


def _thoughts(given: Mapping[str, Any], *, path: str) -> dict[str, Any]:
    for name in _REASONING:
        value = given.get(name)
        if isinstance(value, str) and value:
            return {"reasoning_content": value}
        if value is not None and not isinstance(value, str):
            raise bad_field(f"{path}.{name}", "must be a text.")
    return {}


def _call(call: Mapping[str, Any], *, path: str) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise bad_field(path, "has no function with a name; send the call as it was given to you.")
    return {
        "id": text(call, "id", path=f"{path}.id") or "",
        "type": "function",
        "function": {
            "name": function["name"],
            "arguments": _arguments(function.get("arguments"), path=f"{path}.function.arguments"),
        },
    }


def _arguments(given: Any, *, path: str) -> Any:
    """Return the arguments as an object; a text that is no JSON stays one."""
    if given is None or given == "":
        return {}
    if isinstance(given, dict):
        return given
    if not isinstance(given, str):
        raise bad_field(path, "must be a text of JSON.")
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return given
