"""Messages as OpenAI's API takes them, and its replies as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from openai.types.chat import ChatCompletionMessage

__all__ = ["api_messages", "reply_text"]

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


def reply_text(message: ChatCompletionMessage) -> str:
    """Return a reply as a model would have written it, calls in the notation ``hermes``.

    Reasoning that the API sends beside the content is left out.
    """
    calls = [call.function for call in message.tool_calls or () if call.type == "function"]
    written = [
        "<tool_call>\n"
        + f'{{"name": {json.dumps(one.name)}, "arguments": {one.arguments or "{}"}}}'
        + "\n</tool_call>"
        for one in calls
    ]
    return "\n".join([*([message.content] if message.content else []), *written])
