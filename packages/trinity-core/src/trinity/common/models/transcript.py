"""What a run has said and heard, as experiences: one a conversation, or one an unbroken chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from trinity.common.experience import Experience
from trinity.common.models.continuation import Turn, rest_after
from trinity.common.models.recorder import reply_info, version_info
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.models.call import RunRequests
    from trinity.common.models.chat_format import ChatFormat, Message
    from trinity.common.models.clients import RunEndpoints
    from trinity.common.models.history import ChatHistory, Conversation
    from trinity.common.models.recorder import CallRecorder
    from trinity.common.models.settings import ModelSettings

__all__ = ["Remembered", "transcript"]


def transcript(
    turn: Turn, *, history: ChatHistory, chat_format: ChatFormat, temperature: float, max_len: int
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


class Remembered:
    """The part of a model wrapper that gives what was said, to be trained on."""

    _chat_format: ChatFormat
    _endpoints: RunEndpoints
    _history: ChatHistory
    _recorder: CallRecorder
    _run: RunRequests
    _settings: ModelSettings

    @property
    def enable_history(self) -> bool:
        """Return whether every call is recorded."""
        return self._settings.enable_history

    def convert_messages_to_experience(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        temperature: float | None = None,
    ) -> Experience:
        """Return a whole conversation as one experience.

        The replies that this run's engine made come with their token ids and log-probabilities;
        all other tokens are masked. Where the chat template rewrites earlier messages, it is the
        last unbroken chain of replies; :meth:`earlier_chains` has the others.

        Args:
            messages: the conversation.
            tools: as given to :meth:`chat`.
            temperature: stands in the experience where no reply was recorded.
        """
        turn = self._turn(messages, {"tools": tools})
        *earlier, whole = transcript(
            turn,
            history=self._history,
            chat_format=self._chat_format,
            temperature=self._settings.temperature if temperature is None else temperature,
            max_len=self._settings.max_model_len,
        )
        if earlier:
            self._run.broken.append((whole.tokens, earlier))
        if self._run.has_cut_prompts:
            whole.truncate_status = "prompt_truncated"
        return whole

    async def convert_messages_to_experience_async(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        temperature: float | None = None,
    ) -> Experience:
        """Return a whole conversation as one experience; see the other method."""
        return self.convert_messages_to_experience(messages, tools, temperature)

    def earlier_chains(self, experience: Experience) -> list[Experience]:
        """Return the chains that :meth:`convert_messages_to_experience` left out of its result."""
        found = (chains for tokens, chains in self._run.broken if tokens is experience.tokens)
        return next(found, [])

    def extract_experience_from_history(
        self,
        clear_history: bool = True,  # noqa: FBT001, FBT002 -- published
        merge: Literal["exchanges", "chains"] = "exchanges",
    ) -> list[Experience]:
        """Return an experience for each reply so far, in the order of their requests.

        Args:
            clear_history: forget them.
            merge: ``chains``: one for each unbroken chain of replies instead, in which what the
                model did not say is masked.

        Raises:
            ConfigError: calls are not recorded.
        """
        if not (self.enable_history or self._settings.enable_openai_api):
            raise ConfigError(
                "the calls of this model are not recorded. "
                "Set explorer.rollout_model.enable_history: true."
            )
        are_chains = merge == "chains"
        found = self._recorder.chains() if are_chains else self._recorder.exchanges()
        if clear_history:
            self._recorder.clear()
        lost = self._endpoints.num_undelivered
        if lost and found:
            found[-1].metrics["api/undelivered:sum"] = float(lost)
        return found

    def _turn(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Turn:
        thinking = options.get("enable_thinking")
        return Turn(
            messages=tuple(dict(message) for message in messages),
            tools=tuple(options.get("tools") or ()),
            enable_thinking=self._settings.enable_thinking if thinking is None else thinking,
        )
