"""What a run has said and heard: its conversations, with the token ids that the engine made.

A conversation that goes on is not tokenised again. Its recorded ids stand, and only what follows
them is encoded:

    recorded   | prompt ids | reply ids, as sampled |
    messages   | system user  assistant               user          |
    new prompt | prompt ids | reply ids, as sampled | rendered rest |
"""

from __future__ import annotations

import threading
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from trinity.common.models.chat import Chat, message_key, message_keys
from trinity.common.models.chat_format import reply_prefix
from trinity.common.models.continuation import Break, continuation_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from trinity.common.models.chat_format import ChatFormat, Message
    from trinity.common.ports import Completion

Spans = tuple[tuple[int, int], ...]  # (first token, version of the weights), in order
PLAIN_TEXT = Chat(messages=(), is_plain_text=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedChat:
    """A conversation, or a plain text without messages, that ends with a reply of the engine.

    One that goes on holds the tokens and the text that were added; all are put together when they
    are asked for. ``logprobs`` and ``action_mask`` belong to the tokens from ``prompt_length`` on.
    """

    chat: Chat  # its last message is the reply, as it was served
    added_text: str  # of the prompt: all of it, or what stands behind that of ``text_before``
    prompt_length: int  # of the first prompt of the chain
    added: array[int]  # the ids behind those of ``before``
    sampled: array[float]  # log-probabilities of the last of them, which the engine sampled
    reply_text: str  # as it was sampled, with its end token
    end_text: str  # of the token that ended the reply; empty: it was cut
    keys: tuple[Hashable, ...]  # of its messages
    temperature: float
    spans: Spans  # counted from the end of the prompt
    # What it holds the replies of, too, and whose prompt's text the prompt's begins with; mostly
    # the same one, so that neither is printed: a chat of n turns would be 2**n times.
    before: RecordedChat | None = field(default=None, repr=False)
    text_before: RecordedChat | None = field(default=None, repr=False, compare=False)
    unseen: Break | None = None  # why its ids hold what no client saw; None: they do not
    name: str = ""  # of the exchange that the reply was served in

    @property
    def first(self) -> RecordedChat:
        """Return the conversation that the chain began with."""
        return self.chain()[0]

    @property
    def prompt_text(self) -> str:
        """Return all before the last message's content, as the template renders it."""
        texts, one = [self.added_text], self.text_before
        while one is not None:
            texts.append(one.added_text)
            one = one.text_before
        return "".join(reversed(texts))

    @property
    def ids(self) -> array[int]:
        """Return all token ids, of 32 bits each."""
        ids = array("i")
        for one in self.chain():
            ids.extend(one.added)
        return ids

    @property
    def logprobs(self) -> tuple[float, ...]:
        """Return the log-probability of each token behind the first prompt, 0 if not sampled."""
        first, *later = self.chain()
        logprobs = [*first.sampled]
        for one in later:
            logprobs += [0.0] * one._num_between
            logprobs += one.sampled
        return tuple(logprobs)

    @property
    def action_mask(self) -> tuple[bool, ...]:
        """Return which tokens behind the first prompt were sampled."""
        first, *later = self.chain()
        mask = [True] * len(first.sampled)
        for one in later:
            mask += [False] * one._num_between + [True] * len(one.sampled)
        return tuple(mask)

    @property
    def replies(self) -> tuple[tuple[int, str], ...]:
        """Return the first token of each reply behind the first prompt, and its name."""
        found, length = [], -self.prompt_length
        for one in self.chain():
            length += len(one.added)
            found.append((length - len(one.sampled), one.name))
        return tuple(found)

    @property
    def _num_between(self) -> int:
        return len(self.added) - len(self.sampled)

    def chain(self) -> list[RecordedChat]:
        """Return the conversations whose replies this one holds, itself as the last."""
        chain = [self]
        while chain[-1].before is not None:
            chain.append(chain[-1].before)
        chain.reverse()
        return chain


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """What the engine is asked with."""

    token_ids: tuple[int, ...]
    text: str
    chat: Chat = PLAIN_TEXT  # that it is the rendering of
    continues: RecordedChat | None = None  # None: rendered whole
    broken: Break | None = None  # None: every recorded reply in it stands there by its ids
    keys: tuple[Hashable, ...] = ()  # of its messages


class _Node:
    """What may come after a beginning of messages, and the conversations that end there.

    Mostly one message comes, and one conversation ends: a table for each would be half of what a
    run holds.
    """

    __slots__ = ("_first", "_others", "conversations")

    def __init__(self) -> None:
        self._first: tuple[Hashable, _Node] | None = None
        self._others: dict[Hashable, _Node] | None = None  # None: there are none
        self.conversations: tuple[RecordedChat, ...] = ()

    def after(self, key: Hashable) -> _Node | None:
        """Return the node behind a message; None: it never came."""
        if self._first is not None and self._first[0] == key:
            return self._first[1]
        return None if self._others is None else self._others.get(key)

    def made_after(self, key: Hashable) -> _Node:
        """Return the node behind a message, which is made if it never came."""
        node = self.after(key)
        if node is None:
            node = _Node()
            if self._first is None:
                self._first = key, node
            elif self._others is None:
                self._others = {key: node}
            else:
                self._others[key] = node
        return node

    def messages(self) -> list[Hashable]:
        """Return the keys of the messages that came."""
        first = [] if self._first is None else [self._first[0]]
        return [*first, *(self._others or ())]


class ChatHistory:
    """The conversations of one run, in the order of their replies.

    They are found by their messages: a step of the search for each message, however many there are.
    Many threads may use it.
    """

    def __init__(self) -> None:
        self._adding = threading.Lock()
        self.clear()

    def add(self, conversation: RecordedChat) -> None:
        """Record a conversation."""
        with self._adding:
            node = self._root
            for key in conversation.keys:
                node = node.made_after(key)
            node.conversations = (*node.conversations, conversation)
            self._served.add(conversation.keys[-1])

    def clear(self) -> None:
        """Forget all."""
        self._root = _Node()
        self._served: set[Hashable] = set()

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was said yet."""
        return not self._served

    def longest(self, chat: Chat) -> RecordedChat | None:
        """Return the longest conversation that the messages begin with, the latest of equals."""
        return _last(self._path(message_keys(chat)), None)

    def chains(self, chat: Chat) -> list[RecordedChat]:
        """Return the unbroken chains of the conversation, in their order; together all replies.

        A chain is broken where the template writes earlier messages differently once others
        follow, and where a reply was sampled at another temperature.
        """
        chains: list[RecordedChat] = []
        found = self.longest(chat)
        while found is not None:
            chains.insert(0, found)
            asked = chat.with_messages(found.first.chat.messages[:-1])
            found = self.longest(asked)
        return chains

    def search(self, chat: Chat, keys: Sequence[Hashable]) -> Found:
        """Return the longest conversation that can go on, and why a longer one cannot."""
        path = self._path(keys)
        found = _last(path, chat)
        place = len(found.keys) if found is not None else 0
        longer = _last(path[place:], None)
        if longer is not None:
            has_tools = longer.chat.has_tools_of(chat)
            return Found(found, "other_options" if has_tools else "other_tools")
        if any(key in self._served for key in keys[place:]):
            return Found(found, "edited")
        has_other = place < len(path) < len(keys) and self._has_another_reply(path[-1])
        is_reply = has_other and chat.messages[len(path)].get("role") == "assistant"
        return Found(found, "edited" if is_reply else None)

    def _has_another_reply(self, node: _Node) -> bool:
        return any(key in self._served for key in node.messages())

    def _path(self, keys: Sequence[Hashable]) -> list[_Node]:
        """Return the nodes of the messages, from the first on, as far as they are known."""
        path: list[_Node] = []
        node: _Node | None = self._root
        for key in keys:
            node = node.after(key) if node is not None else None
            if node is None:
                break
            path.append(node)
        return path


class Found(NamedTuple):
    """The recorded conversation that goes on, and why not every recorded reply does."""

    conversation: RecordedChat | None
    broken: Break | None


def _last(path: Sequence[_Node], chat: Chat | None) -> RecordedChat | None:
    """Return the last conversation of a path that has the chat's options; None: of any options."""
    for node in reversed(path):
        for conversation in reversed(node.conversations):
            if chat is None or conversation.chat.has_options_of(chat):
                return conversation
    return None


def make_prompt(
    chat: Chat,
    *,
    history: ChatHistory,
    chat_format: ChatFormat,
    temperature: float | None = None,
    keeps_reasoning: bool = False,
) -> Prompt:
    """Return the prompt: recorded ids and the rendered rest, or the whole rendering.

    Args:
        chat: that is to go on.
        history: of the run.
        chat_format: tokenizer and chat template.
        temperature: that the reply is to be sampled at; None: whatever the recorded one's is.
        keeps_reasoning: go on where the rendering lacks the reasoning of the reply, too.
    """
    has_replies = any(message.get("role") == "assistant" for message in chat.messages)
    is_of_one_run = has_replies and not history.is_empty
    text, keys = chat.render(chat_format, is_of_one_run=is_of_one_run), message_keys(chat)
    found, broken = history.search(chat, keys)
    if found is not None:
        rest = continuation_of(
            found, chat, text=text, chat_format=chat_format, keeps_reasoning=keeps_reasoning
        )
        if rest.broken is None:
            if temperature is not None and found.temperature != temperature:
                broken = broken or "temperature"
            return Prompt(
                token_ids=(*found.ids, *chat_format.encode(rest.text)),
                text=text,
                chat=chat.sharing(found.chat),
                continues=found,
                broken=broken,
                keys=keys,
            )
        broken = broken or rest.broken
    ids = tuple(chat_format.encode(text))
    return Prompt(token_ids=ids, text=text, chat=chat, broken=broken, keys=keys)


def conversation_after(  # noqa: PLR0913 -- what a conversation is made of
    prompt: Prompt,
    completion: Completion,
    *,
    message: Message,
    reply_text: str,
    end_text: str,
    temperature: float,
    name: str,
) -> RecordedChat:
    """Return the conversation that the prompt and the engine's answer make.

    The answer is a message as it was served, and a text as it was sampled, with its end token.
    """
    before = prompt.continues
    if before is not None and before.temperature != temperature:  # an experience has but one
        before = None
    start, num_before, spans = len(prompt.token_ids), 0, spans_of(completion)
    if before is not None:
        num_before, start = len(before.ids), before.prompt_length
        spans = _joined_spans(before.spans, spans, offset=len(prompt.token_ids) - start)
    prefix = reply_prefix(prompt.chat.messages)
    text_before, added_text = _shared_text(prompt.continues, prompt.text.removesuffix(prefix))
    chat, keys = _with_reply(prompt, message, prefix=prefix)
    return RecordedChat(
        chat=chat,
        added_text=added_text,
        prompt_length=start,
        added=array("i", (*prompt.token_ids[num_before:], *completion.token_ids)),
        sampled=array("d", completion.logprobs),
        reply_text=prefix + reply_text,
        end_text=end_text,
        keys=keys,
        temperature=temperature,
        spans=spans,
        before=before,
        text_before=text_before,
        unseen=None if completion.stop_reason is None else "stop_string",
        name=name,
    )


def spans_of(completion: Completion) -> Spans:
    """Return each stretch of tokens that one version of the weights sampled."""
    return completion.version_spans or ((0, int(completion.weight_version)),)


def _joined_spans(before: Spans, after: Spans, *, offset: int) -> Spans:
    """Return the stretches of a text that goes on, without those that change nothing.

    >>> _joined_spans(((0, 1),), ((0, 1), (4, 3)), offset=8)
    ((0, 1), (12, 3))
    """
    joined = [*before]
    for first, version in after:
        if joined[-1][1] != version:
            joined.append((offset + first, version))
    return tuple(joined)


def _with_reply(
    prompt: Prompt, message: Message, *, prefix: str
) -> tuple[Chat, tuple[Hashable, ...]]:
    """Return the chat with the reply as its last message, and the keys of all of its messages.

    The keys are the very objects that the continued conversation has. A client sends a chat anew
    each time: else each request would hold all of its texts once more.
    """
    chat = prompt.chat
    if chat.is_plain_text:
        return chat, ()
    asked = chat.messages[:-1] if prefix else chat.messages
    served = {**message, "content": prefix + message["content"]}
    held = () if prompt.continues is None else prompt.continues.keys
    shared = (*held, *prompt.keys[len(held) :])[: len(asked)]
    return chat.with_messages([*asked, served]), (*shared, message_key(served))


def _shared_text(before: RecordedChat | None, text: str) -> tuple[RecordedChat | None, str]:
    """Return whose prompt's text the text begins with, and what stands behind it."""
    if before is None:
        return None, text
    head = before.prompt_text
    return (before, text[len(head) :]) if text.startswith(head) else (None, text)
