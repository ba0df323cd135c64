"""Messages as OpenAI's API takes them, and its replies as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["api_messages", "reply_of"]

_TAKEN = ("role", "content", "name", "tool_calls", "tool_call_id")


def api_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages without what the API does not know, such as earlier reasoning.

    The arguments of calls become JSON text.

    >>> api_messages([{"role": "user", "content": "Why?", "reasoning_content": "Hm."}])
    [{'role': 'user', 'content': 'Why?'}]
    """
    made = [{name: one[name] for name in _TAKEN if name in one} for one in messages]
    for message in made:
        if message.get("tool_calls"):
            message["tool_calls"] = [_api_call(call) for call in message["tool_calls"]]
    return made


def _api_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    if not isinstance(function["arguments"], str):
        function["arguments"] = json.dumps(function["arguments"])
    return {"id": call.get("id", "call"), "type": "function", "function": function}


class _Function(BaseModel):
    name: str
    arguments: str | dict[str, Any] | None = None  # Any: JSON; some servers send the object


class _Call(BaseModel):
    function: _Function | None = None  # None: a call of another kind


class _Part(BaseModel):
    type: str
    text: str = ""


class _Message(BaseModel):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Reply(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


def reply_of(body: str) -> tuple[str, bool]:
    """Return the text of a reply as a model would have written it, and whether it was cut.

    Calls are in the notation ``hermes``. Reasoning that the API sends beside the content is left
    out. Half a character, which no text can hold, becomes ``?``.

    >>> reply_of('{"choices": [{"message": {"content": "4"}, "finish_reason": "length"}]}')
    ('4', True)

    Raises:
        ValueError: the body is no reply.
    """
    text = json.dumps(json.loads(body), ensure_ascii=False).encode(errors="replace")
    choice = _Reply.model_validate_json(text).choices[0]
    calls = [one.function for one in choice.message.tool_calls or () if one.function is not None]
    parts = [_content(choice.message), *map(_written, calls)]
    is_filtered = choice.finish_reason == "content_filter" and not choice.message.refusal
    is_cut = choice.finish_reason == "length" or is_filtered
    return "\n".join(part for part in parts if part), is_cut


def _content(message: _Message) -> str:
    if isinstance(message.content, list):
        return "".join(part.text for part in message.content if part.type == "text")
    return message.content or message.refusal or ""


def _written(call: _Function) -> str:
    given = call.arguments
    arguments = json.dumps(given) if isinstance(given, dict) else given or "{}"
    return (
        f'<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {arguments}}}\n</tool_call>'
    )
