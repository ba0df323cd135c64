"""How a chat continues a recorded reply: the rule by which recorded token ids go on.

    recorded     | prompt ids ...                      | reply ids, as sampled |
    rendered     | same ... | opening | content, calls | end token | rest ...  |
    next prompt  | prompt ids ...                      | reply ids, as sampled | ids of the rest |

Only the rest is tokenised. How the opening, the content and the calls are spelled in the rendering
is of no matter: the ids that were sampled stand for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.models.chat import Chat
    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.models.chat_history import RecordedChat

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
    "calls_left_out",
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
    "calls_left_out": "the reply calls more tools than the request allows; its ids hold them all",
}
_THOUGHTS_END = "</think>"
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Continuation:
    """The text that follows a recorded reply and its end token, or why there is none."""

    text: str = ""
    broken: Break | None = None  # None: the recorded ids go on with the text


def continuation_of(
    conversation: RecordedChat,
    chat: Chat,
    *,
    text: str,
    chat_format: ChatFormat,
    keeps_reasoning: bool = False,
    add_generation_prompt: bool = True,
) -> Continuation:
    """Return what of ``text``, the rendering of the chat, follows the recorded reply.

    Args:
        conversation: ends with the reply; its messages are the first of the chat's.
        chat: that was rendered.
        text: the whole rendering.
        chat_format: that rendered it.
        keeps_reasoning: go on where the rendering lacks the reply's reasoning, too.
        add_generation_prompt: as ``text`` was rendered.
    """
    place = len(conversation.chat.messages) - 1
    is_last = place == len(chat.messages) - 1  # it is to go on itself, but it may have ended
    if is_last or conversation.unseen is not None:
        return Continuation(broken="edited" if is_last else conversation.unseen)
    literal = conversation.prompt_text + conversation.reply_text
    if conversation.end_text and text.startswith(literal):  # spelled as it was sampled
        return Continuation(text=text[len(literal) :])
    start = _same(conversation, text=text, chat_format=chat_format)
    seeker = _Seeker(chat, place, chat_format, add_generation_prompt=add_generation_prompt)
    rest = seeker.rest(text, end_text=conversation.end_text)
    end = len(text) - len(rest.text)
    is_rewritten = not keeps_reasoning if start is None else start > end
    if is_rewritten or not text.endswith(rest.text):
        return Continuation(broken="rewritten")
    if start is None:
        return _after_thoughts(conversation, chat, rest, head=text[:end], chat_format=chat_format)
    broken = rest.broken or _what_lacks(conversation, chat.messages[place], text[start:end])
    if broken is None or (broken == "reasoning_dropped" and keeps_reasoning):
        return rest
    return Continuation(broken=broken)


def _after_thoughts(
    conversation: RecordedChat,
    chat: Chat,
    rest: Continuation,
    *,
    head: str,
    chat_format: ChatFormat,
) -> Continuation:
    """Return the rest where the past is written anew in nothing but its thoughts."""
    before = conversation.chat.with_messages(conversation.chat.messages[:-1])
    closed = _without_thoughts(before.render(chat_format, add_generation_prompt=False))
    if rest.broken is not None or not _without_thoughts(head).startswith(closed):
        return Continuation(broken="rewritten")
    place = len(conversation.chat.messages) - 1
    broken = _what_lacks(conversation, chat.messages[place], head)
    return rest if broken in {None, "reasoning_dropped"} else Continuation(broken=broken)


def _without_thoughts(text: str) -> str:
    """Return the text without reasoning; without white space too, for some of it goes along."""
    return "".join(_THOUGHTS.sub("", text).split())


def _same(conversation: RecordedChat, *, text: str, chat_format: ChatFormat) -> int | None:
    """Return the length of what was there before the reply, None where it is written anew."""
    if text.startswith(conversation.prompt_text):
        return len(conversation.prompt_text)
    before = conversation.chat.with_messages(conversation.chat.messages[:-1])
    closed = before.render(chat_format, add_generation_prompt=False)
    same = _common_length(conversation.prompt_text, closed)
    return same if text.startswith(closed[:same]) else None


def _common_length(one: str, other: str) -> int:
    if one.startswith(other):
        return len(other)
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _what_lacks(conversation: RecordedChat, message: Any, middle: str) -> Break | None:
    """Return why the rendered reply is not what was served (Any: the message as it came back)."""
    served = conversation.chat.messages[-1]
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
        self, chat: Chat, place: int, chat_format: ChatFormat, *, add_generation_prompt: bool
    ) -> None:
        self.chat = chat
        self.place = place
        self.chat_format = chat_format
        self.add_generation_prompt = add_generation_prompt

    def rest(self, text: str, *, end_text: str) -> Continuation:
        """Return what follows the message and the text of its end token."""
        mark = _unused(text, "trinity-reply")
        for changes in self._places(mark):
            after = self._after(mark, self.chat.with_message(self.place, **changes))
            if after is not None:
                break
        else:
            return Continuation(broken="rewritten")
        if not end_text:  # the reply was cut: the template closes it, and its calls with it
            has_calls = bool(self.chat.messages[self.place].get("tool_calls"))
            return Continuation(broken="no_end") if has_calls else Continuation(text=after)
        head, found, tail = after.partition(end_text)
        is_sure = not head.strip() or self._holds_what_follows(tail, text)
        if not found or not (is_sure or self._is_closing(head + found, mark, changes)):
            return Continuation(broken="no_end")
        return Continuation(text=tail)

    def _holds_what_follows(self, tail: str, text: str) -> bool:
        """Return whether the next message says something that stands in the tail alone."""
        content = self.chat.messages[self.place + 1].get("content")
        if not isinstance(content, str) or not content.strip():
            return False
        return content in tail and text.count(content) == 1

    def _places(self, mark: str) -> Iterator[dict[str, Any]]:  # Any: what a message holds
        """Give the changes of the message that put the mark near its end, the best first.

        That is in the last call, where there is one: content may stand anywhere beside calls, have
        an end token of its own, or be left out.
        """
        *others, last = self.chat.messages[self.place].get("tool_calls") or [None]
        function = last["function"] if last else {}
        if isinstance(function.get("arguments"), Mapping):
            marked = {**function, "arguments": {**function["arguments"], mark: mark}}
            yield {"tool_calls": [*others, {**last, "function": marked}]}
        yield {"content": mark}

    def _after(self, mark: str, marked: Chat) -> str | None:
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
        marked = self.chat.with_message(self.place, **changes)
        after = self._after(mark, marked.with_message(self.place + 1, content=following))
        before, found, _ = (after or "").partition(following)
        return bool(found) and before.startswith(closing)


def _unused(text: str, word: str) -> str:
    """Return a word that the text does not hold."""
    while word in text:
        word += "-x"
    return word
