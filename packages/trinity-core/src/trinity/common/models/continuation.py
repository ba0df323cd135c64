"""How a chat goes on by recorded token ids: its turns, and what follows a recorded reply.

    recorded     | prompt ids ...                      | reply ids, as sampled |
    rendered     | same ... | opening | content, calls | end token | rest ...  |
    next prompt  | prompt ids ...                      | reply ids, as sampled | ids of the rest |

Only the rest is tokenised. How the opening, the content and the calls are spelled in the rendering
is of no matter: the ids that were sampled stand for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trinity.common.models.chat_format import ChatFormat, Message
    from trinity.common.models.history import Conversation

__all__ = ["BREAKS", "Break", "Continuation", "Turn", "message_key", "message_keys", "rest_after"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """What is rendered: messages and the template's options."""

    messages: tuple[Message, ...]
    tools: tuple[Message, ...] = ()
    enable_thinking: bool | None = None  # None: the template's own choice
    options: Mapping[str, Any] = field(default_factory=dict)  # further names that it reads

    def render(
        self,
        chat_format: ChatFormat,
        *,
        add_generation_prompt: bool = True,
        is_of_one_run: bool = False,
    ) -> str:
        """Return the turn as text; see :meth:`ChatFormat.render`."""
        return chat_format.render(
            self.messages,
            add_generation_prompt=add_generation_prompt,
            tools=self.tools,
            enable_thinking=self.enable_thinking,
            options=self.options,
            is_of_one_run=is_of_one_run,
        )

    def with_messages(self, messages: Sequence[Message]) -> Turn:
        """Return the same options with other messages."""
        return replace(self, messages=tuple(messages))

    def with_message(self, place: int, **changes: Any) -> Turn:
        """Return the turn with something else in one message (Any: a message's own values)."""
        messages = list(self.messages)
        messages[place] = {**messages[place], **changes}
        return self.with_messages(messages)

    def sharing(self, other: Turn) -> Turn:
        """Return the same turn, with the other's messages and tools where they are spelled alike.

        So that a chat that goes on, which a client sends anew each time, is held once. What is
        equal may still be rendered differently: 2 is 2.0, and the order of arguments matters.
        """
        held = zip(self.messages, other.messages, strict=False)
        shared = [theirs if _is_alike(mine, theirs) else mine for mine, theirs in held]
        messages = (*shared, *self.messages[len(shared) :])
        tools = other.tools if repr(self.tools) == repr(other.tools) else self.tools
        return replace(self, messages=messages, tools=tools)

    def has_tools_of(self, other: Turn) -> bool:
        """Return whether both tell the model of the same tools."""
        return [dict(tool) for tool in self.tools] == [dict(tool) for tool in other.tools]

    def has_options_of(self, other: Turn) -> bool:
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


def message_keys(turn: Turn) -> tuple[Hashable, ...]:
    """Return the key of each message."""
    return tuple(message_key(message) for message in turn.messages)


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


#: why a recorded reply is not gone on with by its ids
Break = Literal[
    "rewritten",
    "reasoning_dropped",
    "edited",
    "other_tools",
    "other_options",
    "temperature",
    "no_end",
    "stop_string",
]
BREAKS: dict[Break, str] = {
    "rewritten": "the chat template writes what came before differently once others follow",
    "reasoning_dropped": "the reply's reasoning did not come back, or the template leaves it out",
    "edited": "the client changed the reply, or what came before it",
    "other_tools": "the tools are others than those of the recorded reply",
    "other_options": "the template's options are others than those of the recorded reply",
    "temperature": "the recorded reply was sampled at another temperature",
    "no_end": "the token that ended the reply is not found in the rendering",
    "stop_string": "a stop string ended the reply: its ids hold text that the client never saw",
}
_THOUGHTS_END = "</think>"
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Continuation:
    """The text that follows a recorded reply and its end token, or why there is none."""

    text: str = ""
    broken: Break | None = None  # None: the recorded ids go on with the text


def rest_after(
    conversation: Conversation,
    turn: Turn,
    *,
    text: str,
    chat_format: ChatFormat,
    keeps_reasoning: bool = False,
    add_generation_prompt: bool = True,
) -> Continuation:
    """Return the part of ``text`` that follows the recorded reply and its end token.

    Args:
        conversation: ends with the reply; its messages are the first of the turn's.
        turn: the messages and options that ``text`` is the rendering of.
        text: the whole rendering.
        chat_format: that rendered it.
        keeps_reasoning: go on where the rendering lacks the reply's reasoning, too.
        add_generation_prompt: as ``text`` was rendered.
    """
    place = len(conversation.turn.messages) - 1
    if place == len(turn.messages) - 1 or conversation.ends_by_stop_string:
        is_last = place == len(turn.messages) - 1  # it is to go on itself, but it may have ended
        return Continuation(broken="edited" if is_last else "stop_string")
    literal = conversation.prompt_text + conversation.reply_text
    if conversation.end_text and text.startswith(literal):  # spelled as it was sampled
        return Continuation(text=text[len(literal) :])
    start = _same(conversation, text=text, chat_format=chat_format)
    if start is None and keeps_reasoning:
        return _rest_without_thoughts(
            conversation,
            turn,
            text=text,
            chat_format=chat_format,
            add_generation_prompt=add_generation_prompt,
        )
    seeker = _Seeker(turn, place, chat_format, add_generation_prompt=add_generation_prompt)
    rest = seeker.rest(text, end_text=conversation.end_text)
    end = len(text) - len(rest.text)
    if start is None or not text.endswith(rest.text) or start > end:
        return Continuation(broken="rewritten")
    broken = rest.broken or _what_lacks(conversation, turn.messages[place], text[start:end])
    if broken is None or (broken == "reasoning_dropped" and keeps_reasoning):
        return rest
    return Continuation(broken=broken)


def _rest_without_thoughts(
    conversation: Conversation,
    turn: Turn,
    *,
    text: str,
    chat_format: ChatFormat,
    add_generation_prompt: bool,
) -> Continuation:
    """Return the rest where the past is written anew in nothing but its thoughts."""
    before = conversation.turn.with_messages(conversation.turn.messages[:-1])
    closed = _without_thoughts(before.render(chat_format, add_generation_prompt=False))
    place = len(conversation.turn.messages) - 1
    seeker = _Seeker(turn, place, chat_format, add_generation_prompt=add_generation_prompt)
    rest = seeker.rest(text, end_text=conversation.end_text)
    head = text.removesuffix(rest.text)
    is_same = text.endswith(rest.text) and _without_thoughts(head).startswith(closed)
    if rest.broken is not None or not is_same:
        return Continuation(broken="rewritten")
    broken = _what_lacks(conversation, turn.messages[place], head)
    return rest if broken in {None, "reasoning_dropped"} else Continuation(broken=broken)


def _without_thoughts(text: str) -> str:
    """Return the text without reasoning; without white space too, for some of it goes along."""
    return "".join(_THOUGHTS.sub("", text).split())


def _same(conversation: Conversation, *, text: str, chat_format: ChatFormat) -> int | None:
    """Return the length of what was there before the reply, None where it is written anew."""
    if text.startswith(conversation.prompt_text):
        return len(conversation.prompt_text)
    before = conversation.turn.with_messages(conversation.turn.messages[:-1])
    closed = before.render(chat_format, add_generation_prompt=False)
    same = _common_length(conversation.prompt_text, closed)
    return same if text.startswith(closed[:same]) else None


def _common_length(one: str, other: str) -> int:
    if one.startswith(other):
        return len(other)
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _what_lacks(conversation: Conversation, message: Any, middle: str) -> Break | None:
    """Return why the rendered reply is not what was served (Any: the message as it came back)."""
    served = conversation.turn.messages[-1]
    reasoning = str(served.get("reasoning_content") or "").strip()
    returned = str(message.get("reasoning_content") or "").strip()
    if returned and returned != reasoning:
        return "edited"
    content = str(served.get("content") or "").strip()
    if content not in middle:
        said = content.rpartition(_THOUGHTS_END)[2].strip()
        is_shorter = said != content and said in middle
        return "reasoning_dropped" if is_shorter else "rewritten"
    names = [call["function"]["name"] for call in served.get("tool_calls") or ()]
    if not all(name in middle for name in names):
        return "rewritten"
    return None if reasoning in middle else "reasoning_dropped"


class _Seeker:
    """Finds where a message ends in a rendering, by renderings with a mark in its place."""

    def __init__(
        self, turn: Turn, place: int, chat_format: ChatFormat, *, add_generation_prompt: bool
    ) -> None:
        self.turn = turn
        self.place = place
        self.chat_format = chat_format
        self.add_generation_prompt = add_generation_prompt

    def rest(self, text: str, *, end_text: str) -> Continuation:
        """Return what follows the message and the text of its end token."""
        mark = _unused(text, "trinity-reply")
        for changes in self._places(mark):
            after = self._after(mark, self.turn.with_message(self.place, **changes))
            if after is not None:
                break
        else:
            return Continuation(broken="rewritten")
        if not end_text:  # the reply was cut: the template closes it, and its calls with it
            has_calls = bool(self.turn.messages[self.place].get("tool_calls"))
            return Continuation(broken="no_end") if has_calls else Continuation(text=after)
        head, found, tail = after.partition(end_text)
        is_sure = not head.strip() or self._holds_what_follows(tail, text)
        if not found or not (is_sure or self._is_closing(head + found, mark, changes)):
            return Continuation(broken="no_end")
        return Continuation(text=tail)

    def _holds_what_follows(self, tail: str, text: str) -> bool:
        """Return whether the next message says something that stands in the tail alone."""
        content = self.turn.messages[self.place + 1].get("content")
        if not isinstance(content, str) or not content.strip():
            return False
        return content in tail and text.count(content) == 1

    def _places(self, mark: str) -> Iterator[dict[str, Any]]:  # Any: what a message holds
        """Give the changes of the message that put the mark near its end, the best first.

        That is in the last call, where there is one: content may stand anywhere beside calls, have
        an end token of its own, or be left out.
        """
        *others, last = self.turn.messages[self.place].get("tool_calls") or [None]
        function = last["function"] if last else {}
        if isinstance(function.get("arguments"), Mapping):
            marked = {**function, "arguments": {**function["arguments"], mark: mark}}
            yield {"tool_calls": [*others, {**last, "function": marked}]}
        yield {"content": mark}

    def _after(self, mark: str, marked: Turn) -> str | None:
        """Return what follows the mark, None where it is not there."""
        try:
            rendering = marked.render(
                self.chat_format, add_generation_prompt=self.add_generation_prompt
            )
        except ModelError:  # some templates refuse content beside reasoning and calls
            return None
        _, found, after = rendering.rpartition(mark)
        return after if found else None

    def _is_closing(self, closing: str, mark: str, changes: dict[str, Any]) -> bool:
        """Return whether the text ends a message: it stands before what the next one says."""
        if not self.chat_format.ends_with_added_token(closing):
            return False  # an ordinary token may stand anywhere
        following = _unused(mark, "trinity-next")
        marked = self.turn.with_message(self.place, **changes)
        after = self._after(mark, marked.with_message(self.place + 1, content=following))
        before, found, _ = (after or "").partition(following)
        return bool(found) and before.startswith(closing)


def _unused(text: str, word: str) -> str:
    """Return a word that the text does not hold."""
    while word in text:
        word += "-x"
    return word
