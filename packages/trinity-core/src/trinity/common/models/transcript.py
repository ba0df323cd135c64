"""Makes one experience of a whole conversation, or of each of its unbroken chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.experience import Experience
from trinity.common.models.reply_names import reply_info
from trinity.common.models.rest import rest_after
from trinity.common.models.versions import version_info

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.models.history import Conversation, History
    from trinity.common.models.turn import Turn

__all__ = ["transcript"]


def transcript(
    turn: Turn, *, history: History, chat_format: ChatFormat, temperature: float, max_len: int
) -> list[Experience]:
    """Return an experience for each unbroken chain; the last is that of the conversation.

    Recorded replies are as sampled, every other token is masked.

    Args:
        turn: the conversation.
        history: of the run that it took place in.
        chat_format: tokenizer and chat template.
        temperature: of the experience where nothing was recorded.
        max_len: what follows the last reply is left out where the whole would be longer; a
            conversation that leaves no room for another token is ``response_truncated``.
    """
    chains = history.chains(turn)
    if not chains:
        return [_unrecorded(turn, chat_format, temperature)]
    earlier = [_experience(chain, chain.turn, (), chat_format) for chain in chains[:-1]]
    last = chains[-1]
    whole = last.turn.with_messages(turn.messages)
    rest = _rest_ids(last, whole, chat_format)
    length = len(last.token_ids) + len(rest)
    experience = _experience(last, whole, () if length > max_len else rest, chat_format)
    experience.truncate_status = "response_truncated" if length >= max_len else None
    return [*earlier, experience]


def _experience(
    conversation: Conversation, turn: Turn, rest: Sequence[int], chat_format: ChatFormat
) -> Experience:
    return Experience(
        tokens=[*conversation.token_ids, *rest],  # type: ignore[arg-type]  # becomes a tensor
        prompt_length=conversation.prompt_length,
        logprobs=[*conversation.logprobs, *[0.0] * len(rest)],  # type: ignore[arg-type]
        action_mask=[*conversation.action_mask, *[False] * len(rest)],  # type: ignore[arg-type]
        temperature=conversation.temperature,
        info=version_info(conversation.spans) | reply_info(conversation.replies),
        messages=[dict(message) for message in turn.messages],
        tools=[dict(tool) for tool in turn.tools] or None,
        prompt_text=chat_format.decode(
            conversation.token_ids[: conversation.prompt_length], skip_special_tokens=False
        ),
        response_text=chat_format.decode(conversation.token_ids[conversation.prompt_length :]),
    )


def _rest_ids(conversation: Conversation, turn: Turn, chat_format: ChatFormat) -> Sequence[int]:
    """Return the ids of what follows the last reply; none where the template breaks the chain."""
    if len(turn.messages) == len(conversation.turn.messages):
        return []
    rest = rest_after(
        conversation,
        turn,
        text=turn.render(chat_format, add_generation_prompt=False),
        chat_format=chat_format,
        add_generation_prompt=False,
    )
    return chat_format.encode(rest.text) if rest.broken is None else []


def _unrecorded(turn: Turn, chat_format: ChatFormat, temperature: float) -> Experience:
    text = turn.render(chat_format, add_generation_prompt=False)
    head = _head(turn, text, chat_format)
    prompt_ids = chat_format.encode(head)
    rest_ids = chat_format.encode(text[len(head) :])
    return Experience(
        tokens=[*prompt_ids, *rest_ids],  # type: ignore[arg-type]  # becomes a tensor
        prompt_length=len(prompt_ids),
        logprobs=[0.0] * len(rest_ids),  # type: ignore[arg-type]
        action_mask=[False] * len(rest_ids),  # type: ignore[arg-type]
        temperature=temperature,
        messages=[dict(message) for message in turn.messages],
        tools=[dict(tool) for tool in turn.tools] or None,
        prompt_text=head,
        response_text=text[len(head) :],
    )


def _head(turn: Turn, text: str, chat_format: ChatFormat) -> str:
    """Return the text before the first reply, or all of it where no such cut can be made."""
    roles = [message.get("role") for message in turn.messages]
    if "assistant" not in roles[1:]:
        return text
    first = roles.index("assistant", 1)
    head = turn.with_messages(turn.messages[:first]).render(chat_format)
    return head if text.startswith(head) else text
