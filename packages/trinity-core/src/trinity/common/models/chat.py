"""A chat as it is rendered: its messages in one form, and what makes two of them the same."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trinity.common.models.canonical_messages import canonical_messages  # published here

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.models.chat_format import ChatFormat, Message

__all__ = ["Chat", "canonical_messages", "message_key", "message_keys"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chat:
    """What is rendered: messages and the template's options."""

    messages: tuple[Message, ...]
    tools: tuple[Message, ...] = ()
    enable_thinking: bool | None = None  # None: the template's own choice
    options: Mapping[str, Any] = field(default_factory=dict)  # further names that it reads
    is_plain_text: bool = False  # no messages were rendered: no later chat goes on with it

    def render(
        self,
        chat_format: ChatFormat,
        *,
        add_generation_prompt: bool = True,
        is_of_one_run: bool = False,
    ) -> str:
        """Return the chat as text; see :meth:`ChatFormat.render`."""
        return chat_format.render(
            self.messages,
            add_generation_prompt=add_generation_prompt,
            tools=self.tools,
            enable_thinking=self.enable_thinking,
            options=self.options,
            is_of_one_run=is_of_one_run,
        )

    def with_messages(self, messages: Sequence[Message]) -> Chat:
        """Return the same options with other messages."""
        return replace(self, messages=tuple(messages))

    def with_message(self, place: int, **changes: Any) -> Chat:
        """Return the chat with something else in one message (Any: a message's own values)."""
        messages = list(self.messages)
        messages[place] = {**messages[place], **changes}
        return self.with_messages(messages)

    def sharing(self, other: Chat) -> Chat:
        """Return the same chat, with the other's messages and tools where they are spelled alike.

        So that a chat that goes on, which a client sends anew each time, is held once. What is
        equal may still be rendered differently: 2 is 2.0, and the order of arguments matters.
        """
        held = zip(self.messages, other.messages, strict=False)
        shared = [theirs if _is_alike(mine, theirs) else mine for mine, theirs in held]
        messages = (*shared, *self.messages[len(shared) :])
        tools = other.tools if repr(self.tools) == repr(other.tools) else self.tools
        return replace(self, messages=messages, tools=tools)

    def has_tools_of(self, other: Chat) -> bool:
        """Return whether both tell the model of the same tools."""
        return [dict(tool) for tool in self.tools] == [dict(tool) for tool in other.tools]

    def has_options_of(self, other: Chat) -> bool:
        """Return whether a template gets the same from both, the messages apart."""
        mine, theirs = (self.enable_thinking, self.options), (other.enable_thinking, other.options)
        return mine == theirs and self.has_tools_of(other)


def _is_alike(mine: Message, theirs: Message) -> bool:
    """Return whether both are spelled alike."""
    if mine is theirs:
        return True
    if mine != theirs:
        return False
    is_text = all(type(value) is str for value in mine.values())
    return list(mine) == list(theirs) if is_text else repr(mine) == repr(theirs)


def message_key(message: Message) -> Hashable:
    """Return what two messages that say the same have in common.

    Of the assistant's it is what was served: the content without white space around it (None is
    nothing), and the tool calls as (id, name, arguments), whatever the spelling of their JSON.

    >>> message_key({"role": "assistant", "content": " yes ", "refusal": None})
    ('assistant', 'yes', ())
    """
    role, content = message.get("role"), message.get("content")
    if role == "assistant" and (content is None or isinstance(content, str)):
        calls = message.get("tool_calls") or ()
        return role, (content or "").strip(), tuple(_call_key(call) for call in calls)
    if isinstance(content, str) and len(message) == 2:
        return role, content
    return role, _key_of({key: value for key, value in message.items() if value is not None})


def message_keys(chat: Chat) -> tuple[Hashable, ...]:
    """Return the key of each message."""
    return tuple(message_key(message) for message in chat.messages)


def _call_key(call: Any) -> Hashable:  # Any: what a client sent
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return _spelled(call)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return call.get("id"), function.get("name"), arguments
    return call.get("id"), function.get("name"), _key_of(arguments)


def _key_of(value: Any) -> Hashable:  # Any: whatever a message may hold
    """Return what equal values have in common; flat ones need no spelling."""
    if isinstance(value, Mapping):
        key = frozenset(value.items()) if all(map(_is_flat, value.values())) else None
        return _spelled(value) if key is None else key
    return _spelled(value)


def _is_flat(value: Any) -> bool:  # Any: whatever a message may hold
    return value is None or type(value) in {str, int, float}


def _spelled(value: Any) -> str:  # Any: whatever a message may hold
    """Return one spelling for equal values; 2.0 is 2, as it is to JavaScript."""
    text = json.dumps(value, sort_keys=True, default=repr)
    if "." not in text and "e" not in text.lower():
        return text
    try:
        return json.dumps(json.loads(text, parse_float=_number), sort_keys=True)
    except RecursionError:
        return text


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number
