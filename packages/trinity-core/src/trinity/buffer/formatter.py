"""A row of supervised data, of two answers or of plain text becomes an experience.

    plaintext   {prompt_key: "1+1=", response_key: "2"}          prompt | response
    messages    {messages_key: [user, assistant, user, assistant]}   all but the last | the last
    ... with enable_concatenated_multi_turn          the first question | the rest; assistant
                                                     tokens are trained on, the others masked

Prompt and responses are tokenised apart, as they are when the model answers.

    plaintext   {prompt_key: "1+1=", chosen_key: "2", rejected_key: "3"}
    messages    {messages_key or prompt_key: [user, ...], chosen_key: [assistant], ...}
    whole conversations   {chosen_key: [user, assistant], rejected_key: [user, assistant]}

The answers are what the assistant says last; all that stands before is the prompt of both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trinity.common.experience import Experience
from trinity.common.rows import no_such_key
from trinity.errors import DataError

if TYPE_CHECKING:
    from trinity.common.config import FormatConfig
    from trinity.common.models.chat_format import ChatFormat

Messages = list[dict[str, Any]]  # Any: the chat format of the data
Row = dict[str, Any]


def is_stored_experience(row: Row) -> bool:
    """Return whether the row was written from an experience."""
    return {"tokens", "prompt_length"} <= row.keys()


def experience_of_row(
    row: Row, *, chat_format: ChatFormat, keys: FormatConfig, origin: str
) -> Experience:
    """Return the experience of a supervised row.

    Raises:
        DataError: the row lacks a key, holds no answer, or its turns cannot be told apart.
    """
    messages = _messages_of_row(row, keys=keys, origin=origin)
    tools = tools_of_row(row, keys=keys)
    spans = SupervisedConversation(
        chat_format, tools=tools, enable_thinking=keys.enable_thinking, origin=origin
    )
    if keys.enable_concatenated_multi_turn:
        spans.add_each_answer(messages)
    else:
        spans.add_answer(messages[:-1], messages[-1])
    experience = spans.experience()
    experience.messages, experience.tools = messages, tools
    return experience


class SupervisedConversation:
    """Token ids of a conversation as far as it was added, with who chose them."""

    def __init__(
        self, chat_format: ChatFormat, *, tools: Any, enable_thinking: bool | None, origin: str
    ) -> None:
        self._format = chat_format
        self._tools = tools
        self._enable_thinking = enable_thinking
        self._origin = origin
        self._text = ""
        self._tokens: list[int] = []
        self._mask: list[bool] = []
        self._texts: tuple[str, str] = ("", "")

    def add_each_answer(self, messages: Messages) -> None:
        """Add the conversation up to its last answer."""
        for place, message in enumerate(messages):
            if message["role"] == "assistant":
                self.add_answer(messages[:place], message)

    def add_answer(self, before: Messages, answer: dict[str, Any]) -> None:
        """Add what stands before an answer, and the answer up to its end-of-turn token."""
        asked = self._render(before, is_open=True)
        whole = self._render([*before, answer], is_open=False)
        self._add(self._rest(asked, done=self._text), is_chosen=False)
        answered = self._up_to_end(self._rest(whole, done=asked))
        self._add(answered, is_chosen=True)
        self._text = asked + answered
        self._texts = (asked, answered)

    def experience(self) -> Experience:
        """Return the experience; its prompt ends before the first token of an answer."""
        if True not in self._mask[1:]:
            raise DataError(f"{self._origin}, holds no answer to learn. Remove the row.")
        prompt_length = self._mask.index(True)
        return Experience(
            tokens=self._tokens,  # type: ignore[arg-type] # a list becomes a tensor
            prompt_length=prompt_length,
            action_mask=self._mask[prompt_length:],  # type: ignore[arg-type]
            prompt_text=self._texts[0],
            response_text=self._texts[1],
        )

    def _render(self, messages: Messages, *, is_open: bool) -> str:
        return self._format.render(
            messages,
            tools=self._tools,
            add_generation_prompt=is_open,
            enable_thinking=self._enable_thinking,
        )

    def _rest(self, text: str, *, done: str) -> str:
        if not text.startswith(done):
            raise DataError(
                f"{self._origin}: the chat template changes earlier turns when later turns follow, "
                f"so Trinity cannot separate the turns. Set "
                f"format.enable_concatenated_multi_turn to false, or give a "
                f"model.custom_chat_template that keeps them."
            )
        return text[len(done) :]

    def _up_to_end(self, text: str) -> str:
        """Return the answer with its end token; a template's line break after it is not sampled."""
        end = self._format.decode(self._format.eos_token_ids, skip_special_tokens=False)
        place = text.rfind(end) if end else -1
        return text.rstrip() if place < 0 else text[: place + len(end)]

    def _add(self, text: str, *, is_chosen: bool) -> None:
        tokens = self._format.encode(text)
        self._tokens.extend(tokens)
        self._mask.extend([is_chosen] * len(tokens))


def _messages_of_row(row: Row, *, keys: FormatConfig, origin: str) -> Messages:
    if keys.prompt_type == "messages" and keys.messages_key in row:
        messages = as_messages(row[keys.messages_key], role="user")
    else:
        messages = _messages_of_texts(row, keys=keys, origin=origin)
    messages = with_system_prompt(messages, row=row, keys=keys)
    if len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise DataError(
            f"{origin}, does not end with an answer of the assistant. Correct or remove the row."
        )
    return messages


def with_system_prompt(messages: Messages, *, row: Row, keys: FormatConfig) -> Messages:
    """Return the messages after the system prompt of the row or of all rows, if there is one."""
    system = row.get(keys.system_prompt_key) if keys.system_prompt_key else keys.system_prompt
    if system and messages and messages[0]["role"] != "system":
        return [{"role": "system", "content": system}, *messages]
    return messages


def _messages_of_texts(row: Row, *, keys: FormatConfig, origin: str) -> Messages:
    for name in ("prompt_key", "response_key"):
        if getattr(keys, name) not in row:
            wanted = "messages_key" if keys.prompt_type == "messages" else name
            key = getattr(keys, wanted)
            raise DataError(no_such_key(origin, key=key, row=row, setting=wanted))
    prompt, response = row[keys.prompt_key], row[keys.response_key]
    return [*as_messages(prompt, role="user"), *as_messages(response, role="assistant")]


def as_messages(value: Any, *, role: str) -> Messages:
    """Return a list of messages as it is, also as json, and a text as one message of a role."""
    value = _loaded(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [dict(message) for message in value]
    return [{"role": role, "content": str(value)}]


def tools_of_row(row: Row, *, keys: FormatConfig) -> Any:
    """Return the descriptions of the row's tools, None if it has none."""
    return _loaded(row.get(keys.tools_key)) or None


def _loaded(value: Any) -> Any:
    """Return what a text holds as json where it is a list, as datasets store nested columns."""
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    return value


def has_pair(row: Row, *, keys: FormatConfig) -> bool:
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
        conversation = SupervisedConversation(
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


def text_of_row(
    row: dict[str, Any],  # Any: somebody else's data
    *,
    chat_format: ChatFormat,
    keys: FormatConfig,
    origin: str,
) -> Experience:
    """Return the experience of a text: each token but the first is learned, and the end token.

    The text is that of ``prompt_key``, with the one of ``response_key`` behind it where the row has
    it; messages are rendered by the chat template.

    Raises:
        DataError: the row lacks its key, or the text is empty; the message names row and key.
    """
    if keys.prompt_type == "messages" and keys.messages_key in row:
        messages = as_messages(row[keys.messages_key], role="user")
        text = chat_format.render(messages, add_generation_prompt=False)
        tokens = chat_format.encode(text)
    elif keys.prompt_key in row:
        text = f"{row[keys.prompt_key]}{row.get(keys.response_key) or ''}"
        tokens = [*chat_format.encode(text), *chat_format.eos_token_ids]
    else:
        wanted = "prompt_key"
        raise DataError(no_such_key(origin, key=keys.prompt_key, row=row, setting=wanted))
    if len(tokens) < 2:
        raise DataError(f"{origin}: the text is empty. Remove the row.")
    return Experience(
        tokens=tokens,  # type: ignore[arg-type] # a list becomes a tensor
        prompt_length=1,
        action_mask=[True] * (len(tokens) - 1),  # type: ignore[arg-type]
        response_text=text,
    )
