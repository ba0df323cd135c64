"""Make one experience of each unbroken chain of recorded calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trinity.common.experience import Experience
from trinity.common.models.continuation import continuation_of
from trinity.common.models.recorded_calls import REPLY_NAMES, ids_tensor, version_info

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.models.chat import Chat
    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.models.chat_history import ChatHistory, RecordedChat
    from trinity.common.models.recorded_calls import RecordedCall


def chains_of(calls: Sequence[RecordedCall]) -> list[Experience]:
    """Return one experience for each unbroken chain of replies, of calls in their order.

    Where a reply was continued in two ways, the second chain holds it masked: it is trained on
    once. So does a chain with a reply of no call, as one that was not to be recorded.
    """
    recorded = {id(call.conversation) for call in calls}
    inner = {id(one) for call in calls for one in call.conversation.chain()[:-1]}
    chains: list[Experience] = []
    for call in calls:
        if id(call.conversation) not in inner:
            chains.append(_of_chain(call, recorded))
            recorded.difference_update(map(id, call.conversation.chain()))
    return chains


def experiences_of_chat(
    chat: Chat, *, history: ChatHistory, chat_format: ChatFormat, temperature: float, max_len: int
) -> list[Experience]:
    """Return an experience for each unbroken chain; the last is that of the conversation.

    Recorded replies are as sampled, every other token is masked.

    Args:
        chat: the conversation.
        history: of the run that it took place in.
        chat_format: tokenizer and chat template.
        temperature: of the experience where nothing was recorded.
        max_len: what follows the last reply is left out where the whole would be longer; a
            conversation that leaves no room for another token is ``response_truncated`` and has
            the reward 0. Of one that was not recorded the last tokens stay, as of a cut prompt.
    """
    chains = history.chains(chat)
    if not chains:
        return [_unrecorded(chat, chat_format, temperature, max_len=max_len)]
    earlier = [_chain_experience(chain, chain.chat, (), chat_format) for chain in chains[:-1]]
    last = chains[-1]
    whole = last.chat.with_messages(chat.messages)
    rest = _rest_ids(last, whole, chat_format)
    length = len(last.ids) + len(rest)
    experience = _chain_experience(last, whole, () if length > max_len else rest, chat_format)
    if length >= max_len:
        experience.truncate_status, experience.reward = "response_truncated", 0.0
    return [*earlier, experience]


def _chain_experience(
    conversation: RecordedChat, chat: Chat, rest: Sequence[int], chat_format: ChatFormat
) -> Experience:
    return Experience(
        tokens=[*conversation.ids, *rest],  # type: ignore[arg-type]  # becomes a tensor
        prompt_length=conversation.prompt_length,
        logprobs=[*conversation.logprobs, *[0.0] * len(rest)],  # type: ignore[arg-type]
        action_mask=[*conversation.action_mask, *[False] * len(rest)],  # type: ignore[arg-type]
        temperature=conversation.temperature,
        info=_chain_info(conversation),
        messages=[dict(message) for message in chat.messages],
        tools=[dict(tool) for tool in chat.tools] or None,
        prompt_text=chat_format.decode(
            conversation.ids[: conversation.prompt_length], skip_special_tokens=False
        ),
        response_text=chat_format.decode(conversation.ids[conversation.prompt_length :]),
    )


def _rest_ids(conversation: RecordedChat, chat: Chat, chat_format: ChatFormat) -> Sequence[int]:
    """Return the ids of what follows the last reply; none where the template breaks the chain."""
    if len(chat.messages) == len(conversation.chat.messages):
        return []
    rest = continuation_of(
        conversation,
        chat,
        text=chat.render(chat_format, add_generation_prompt=False),
        chat_format=chat_format,
        add_generation_prompt=False,
    )
    return chat_format.encode(rest.text) if rest.broken is None else []


def _unrecorded(
    chat: Chat, chat_format: ChatFormat, temperature: float, *, max_len: int
) -> Experience:
    text = chat.render(chat_format, add_generation_prompt=False)
    head = _head(chat, text, chat_format)
    prompt_ids, rest_ids = chat_format.encode(head), chat_format.encode(text[len(head) :])
    ids = [*prompt_ids, *rest_ids][-max_len:]
    prompt_length = max(1, len(ids) - len(rest_ids))
    num_rest = len(ids) - prompt_length
    return Experience(
        tokens=ids,  # type: ignore[arg-type]  # becomes a tensor
        prompt_length=prompt_length,
        logprobs=[0.0] * num_rest,  # type: ignore[arg-type]
        action_mask=[False] * num_rest,  # type: ignore[arg-type]
        temperature=temperature,
        messages=[dict(message) for message in chat.messages],
        tools=[dict(tool) for tool in chat.tools] or None,
        prompt_text=head,
        response_text=text[len(head) :],
    )


def _head(chat: Chat, text: str, chat_format: ChatFormat) -> str:
    """Return the text before the first reply, or all of it where no such cut can be made."""
    roles = [message.get("role") for message in chat.messages]
    if "assistant" not in roles[1:]:
        return text
    first = roles.index("assistant", 1)
    head = chat.with_messages(chat.messages[:first]).render(chat_format)
    return head if text.startswith(head) else text


def _of_chain(call: RecordedCall, trained: set[int]) -> Experience:
    """Return the chain that ends with the reply; other replies than those to train are masked."""
    last = call.conversation
    first, *later = last.chain()
    if not later:
        return call.experience
    mask = list(last.action_mask)
    for (start, _), one in zip(last.replies, last.chain(), strict=True):
        if id(one) not in trained:
            mask[start : start + len(one.sampled)] = [False] * len(one.sampled)
    return replace(
        call.experience,
        tokens=ids_tensor(last),
        prompt_length=last.prompt_length,
        logprobs=[*last.logprobs],  # type: ignore[arg-type]  # becomes a tensor
        action_mask=mask,  # type: ignore[arg-type]
        prompt_text=first.prompt_text,
        info=call.experience.info | _chain_info(last),
    )


def _chain_info(conversation: RecordedChat) -> dict[str, Any]:
    names = [list(reply) for reply in conversation.replies]
    return version_info(conversation.spans) | {REPLY_NAMES: names}
