"""Messages of an API's client, in the one form that chat templates read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.models.chat_format import Message


def canonical_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages as chat templates read them.

    A list of text parts is their text, no content is an empty one, a developer is the system, the
    arguments of a tool call are an object, and reasoning stands under ``reasoning_content``. What
    has no such form, as a picture or arguments that are no object, stays as it is.

    >>> canonical_messages([{"role": "developer", "content": [{"type": "text", "text": "Hi"}]}])
    ({'role': 'system', 'content': 'Hi'},)
    """
    return tuple(_canonical_message(message) for message in messages)


def _canonical_message(message: Message) -> Message:
    made = {key: value for key, value in message.items() if value is not None}
    if made.get("role") == "developer":
        made["role"] = "system"
    made["content"] = _joined_text(made.get("content", ""))
    if "tool_calls" in made:
        made["tool_calls"] = [_canonical_call(call) for call in made["tool_calls"]]
        if not made["tool_calls"]:
            del made["tool_calls"]
    if "reasoning" in made and isinstance(made["reasoning"], str):
        reasoning = made.pop("reasoning")
        made.setdefault("reasoning_content", reasoning)
    return made


def _joined_text(content: Any) -> Any:  # Any: a client's; a text where it is one
    if not isinstance(content, (list, tuple)):
        return content
    parts = (part.get("text") if isinstance(part, Mapping) else None for part in content)
    texts = [text for text in parts if isinstance(text, str)]
    return "".join(texts) if len(texts) == len(content) else content


def _canonical_call(call: Any) -> Any:  # Any: a client's
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        return call
    function = dict(call["function"])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return call
        if isinstance(arguments, Mapping):
            function["arguments"] = arguments
    return {**call, "function": function}
