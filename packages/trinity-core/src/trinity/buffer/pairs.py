"""A row of two answers to one prompt becomes an experience.

    plaintext   {prompt_key: "1+1=", chosen_key: "2", rejected_key: "3"}
    messages    {messages_key or prompt_key: [user, ...], chosen_key: [assistant], ...}
    whole conversations   {chosen_key: [user, assistant], rejected_key: [user, assistant]}

The answers are what the assistant says last; all that stands before is the prompt of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.buffer.formatter import (
    Conversation,
    as_messages,
    tools_of_row,
    with_system_prompt,
)
from trinity.common.experience import Experience
from trinity.common.row_keys import no_such_key
from trinity.errors import DataError

if TYPE_CHECKING:
    from trinity.common.config import FormatConfig
    from trinity.common.models.chat_format import ChatFormat

Messages = list[dict[str, Any]]  # Any: the chat format of the data
Row = dict[str, Any]


def has_pair(row: Row, *, keys: FormatConfig) -> bool:
    """Return whether the row has a preferred and another answer."""
    return {keys.chosen_key, keys.rejected_key} <= row.keys()


def pair_of_row(
    row: Row, *, chat_format: ChatFormat, keys: FormatConfig, origin: str
) -> Experience:
    """Return the experience of a pair: its tokens are the prompt's.

    Raises:
        DataError: the row lacks a key, or an answer is none; the message names row and key.
    """
    for name in ("chosen_key", "rejected_key"):
        if getattr(keys, name) not in row:
            key = getattr(keys, name)
            raise DataError(no_such_key(origin, key=key, row=row, setting=name))
    chosen = as_messages(row[keys.chosen_key], role="assistant")
    rejected = as_messages(row[keys.rejected_key], role="assistant")
    before = _prompt(row, keys=keys, chosen=chosen, rejected=rejected, origin=origin)
    answers = []
    for key, messages in ((keys.chosen_key, chosen), (keys.rejected_key, rejected)):
        conversation = Conversation(
            chat_format,
            tools=tools_of_row(row, keys=keys),
            enable_thinking=keys.enable_thinking,
            origin=origin,
        )
        conversation.add_answer(before, _answer(messages, before=before, key=key, origin=origin))
        answers.append(conversation.experience())
    first, second = answers
    return Experience(
        tokens=first.tokens[: first.prompt_length],
        prompt_length=first.prompt_length,
        chosen=first.tokens[first.prompt_length :],
        rejected=second.tokens[second.prompt_length :],
        chosen_messages=chosen,
        rejected_messages=rejected,
        messages=before,
        tools=tools_of_row(row, keys=keys),
        prompt_text=first.prompt_text,
    )


def _prompt(
    row: Row, *, keys: FormatConfig, chosen: Messages, rejected: Messages, origin: str
) -> Messages:
    """Return what stands before both answers."""
    has_messages = keys.prompt_type != "plaintext" and keys.messages_key in row
    key = keys.messages_key if has_messages else keys.prompt_key
    if key in row:
        return with_system_prompt(as_messages(row[key], role="user"), row=row, keys=keys)
    if len(chosen) > 1 and chosen[:-1] == rejected[:-1]:
        return with_system_prompt(chosen[:-1], row=row, keys=keys)
    wanted = "prompt_key" if keys.prompt_type == "plaintext" else "messages_key"
    raise DataError(no_such_key(origin, key=getattr(keys, wanted), row=row, setting=wanted))


def _answer(messages: Messages, *, before: Messages, key: str, origin: str) -> dict[str, Any]:
    """Return the assistant's message of an answer, which may repeat what stands before it."""
    own, asked = _without_system(messages), _without_system(before)
    if own[: len(asked)] == asked:
        own = own[len(asked) :]
    if len(own) != 1 or own[0].get("role") != "assistant" or not own[0].get("content"):
        raise DataError(
            f"{origin}: {key!r} is no answer of the assistant. Give a text, or one message of the "
            "assistant after the prompt."
        )
    return own[0]


def _without_system(messages: Messages) -> Messages:
    return [message for message in messages if message.get("role") != "system"]
