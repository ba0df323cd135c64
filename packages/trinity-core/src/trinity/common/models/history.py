"""What a run has said and heard: its conversations, with the token ids that the engine made.

A conversation that goes on is not tokenised again. Its recorded ids stand, and only what follows
them is encoded:

    recorded   | prompt ids | reply ids, as sampled |
    messages   | system user  assistant               user          |
    new prompt | prompt ids | reply ids, as sampled | rendered rest |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.models.chat_format import reply_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.models.chat_format import ChatFormat, Message
    from trinity.common.ports import Completion

__all__ = ["Conversation", "History", "Prompt", "Turn", "make_prompt", "recorded", "rest_after"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """What is rendered: messages and the template's options."""

    messages: tuple[Message, ...]
    tools: tuple[Message, ...] = ()
    enable_thinking: bool | None = None  # None: the template's own choice

    def render(self, chat_format: ChatFormat, *, add_generation_prompt: bool = True) -> str:
        """Return the turn as text."""
        return chat_format.render(
            self.messages,
            add_generation_prompt=add_generation_prompt,
            tools=self.tools,
            enable_thinking=self.enable_thinking,
        )

    def with_messages(self, messages: Sequence[Message]) -> Turn:
        """Return the same options with other messages."""
        return Turn(
            messages=tuple(messages), tools=self.tools, enable_thinking=self.enable_thinking
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """A conversation that ends with a reply of the engine.

    ``logprobs`` and ``action_mask`` belong to the tokens from ``prompt_length`` on.
    """

    turn: Turn  # its last message is the reply
    prompt_text: str  # all before the last message's content, as the template renders it
    prompt_length: int  # of the first prompt of the chain
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    action_mask: tuple[bool, ...]
    end_text: str  # of the token that ended the reply; empty: it was cut
    temperature: float
    weight_version: int  # the oldest of its replies
    before: Conversation | None = None  # what it holds the replies of, too

    @property
    def first(self) -> Conversation:
        """Return the conversation that the chain began with."""
        first = self
        while first.before is not None:
            first = first.before
        return first


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """What the engine is asked with."""

    token_ids: tuple[int, ...]
    text: str
    continues: Conversation | None = None  # None: rendered whole


class History:
    """The conversations of one run, in the order of their replies."""

    def __init__(self) -> None:
        self._conversations: list[tuple[Conversation, list[dict[str, Any]]]] = []

    def add(self, conversation: Conversation) -> None:
        """Record a conversation."""
        said = [_identity(message) for message in conversation.turn.messages]
        self._conversations.append((conversation, said))

    def clear(self) -> None:
        """Forget all."""
        self._conversations.clear()

    def longest(self, turn: Turn, *, has_any_options: bool = False) -> Conversation | None:
        """Return the longest conversation that the messages begin with, the latest of equals.

        Args:
            turn: the messages, and the template's options.
            has_any_options: take one that was rendered with other options, too.
        """
        wanted = [_identity(message) for message in turn.messages]
        found: Conversation | None = None
        length = 0
        for conversation, said in list(self._conversations):
            is_longer = length <= len(said) <= len(wanted)
            has_options = has_any_options or _options(conversation.turn) == _options(turn)
            if is_longer and has_options and wanted[: len(said)] == said:
                found, length = conversation, len(said)
        return found

    def chains(self, turn: Turn) -> list[Conversation]:
        """Return the unbroken chains of the conversation, in their order; together all replies.

        A chain is broken where the template writes earlier messages differently once others
        follow, and where a reply was sampled at another temperature.
        """
        chains: list[Conversation] = []
        found = self.longest(turn, has_any_options=True)
        while found is not None:
            chains.insert(0, found)
            asked = turn.with_messages(found.first.turn.messages[:-1])
            found = self.longest(asked, has_any_options=True)
        return chains


def make_prompt(turn: Turn, *, history: History, chat_format: ChatFormat) -> Prompt:
    """Return the prompt: recorded ids and the rendered rest, or the whole rendering."""
    text = turn.render(chat_format)
    conversation = history.longest(turn)
    if conversation is not None:
        rest = rest_after(conversation, turn, text=text, chat_format=chat_format)
        if rest is not None:
            ids = (*conversation.token_ids, *chat_format.encode(rest))
            return Prompt(token_ids=ids, text=text, continues=conversation)
    return Prompt(token_ids=tuple(chat_format.encode(text)), text=text)


def rest_after(
    conversation: Conversation,
    turn: Turn,
    *,
    text: str,
    chat_format: ChatFormat,
    add_generation_prompt: bool = True,
) -> str | None:
    """Return the part of ``text`` that follows the recorded reply and its end token.

    Where the reply ends in the text shows a rendering with a mark in its place. None: the template
    writes earlier messages differently once others follow, so the recorded ids cannot go on.
    """
    place = len(conversation.turn.messages) - 1
    if place == len(turn.messages) - 1:
        return None  # the reply itself is to go on, but it may have ended
    mark = _mark(text)
    marked = list(turn.messages)
    marked[place] = {**marked[place], "content": mark}
    rendering = turn.with_messages(marked).render(
        chat_format, add_generation_prompt=add_generation_prompt
    )
    before, _, after = rendering.partition(mark)
    if before != conversation.prompt_text or mark in after:
        return None
    reply = text[len(before) : len(text) - len(after)]
    if text != before + reply + after or reply.strip() != _content(turn.messages[place]):
        return None
    return _without_end(after, conversation.end_text)


def recorded(
    prompt: Prompt,
    turn: Turn,
    completion: Completion,
    *,
    reply: str,
    end_text: str,
    temperature: float,
) -> Conversation:
    """Return the conversation that the prompt and the engine's answer make."""
    logprobs, mask = completion.logprobs, (True,) * len(completion.token_ids)
    start, version = len(prompt.token_ids), int(completion.weight_version)
    before = prompt.continues
    if before is not None and before.temperature != temperature:  # an experience has but one
        before = None
    if before is not None:
        between = len(prompt.token_ids) - len(before.token_ids)
        logprobs = (*before.logprobs, *(0.0,) * between, *logprobs)
        mask = (*before.action_mask, *(False,) * between, *mask)
        start, version = before.prompt_length, min(version, before.weight_version)
    prefix = reply_prefix(turn.messages)
    said = turn.messages[:-1] if prefix else turn.messages
    return Conversation(
        turn=turn.with_messages([*said, {"role": "assistant", "content": prefix + reply}]),
        prompt_text=prompt.text.removesuffix(prefix),
        prompt_length=start,
        token_ids=(*prompt.token_ids, *completion.token_ids),
        logprobs=logprobs,
        action_mask=mask,
        end_text=end_text,
        temperature=temperature,
        weight_version=version,
        before=before,
    )


def _options(turn: Turn) -> tuple[object, ...]:
    return ([dict(tool) for tool in turn.tools], turn.enable_thinking)


def _identity(message: Message) -> dict[str, Any]:
    kept = {key: value for key, value in message.items() if value is not None}
    if message.get("role") == "assistant" and isinstance(message.get("content"), str):
        kept["content"] = _content(message)
    return kept


def _content(message: Message) -> str:
    return str(message.get("content", "")).strip()


def _without_end(after: str, end_text: str) -> str:
    if not end_text:
        return after
    head, found, tail = after.partition(end_text)
    return tail if found and not head.strip() else after


def _mark(text: str) -> str:
    mark = "trinity-reply"
    while mark in text:
        mark += "-x"
    return mark
