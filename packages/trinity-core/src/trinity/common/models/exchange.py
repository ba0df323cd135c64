"""Chats over an API: a request becomes a prompt, and an answer the message that is served.

    messages, tools --prompt--> ChatRequest --send--> PendingCall --engine--> [Completion]
                                                                     |
    what is trained <--keep-- ChatCompletion <-------------replies------------+

What a client sends back later is compared with what was served, never with the engine's text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from trinity.common.experience import EID, Experience
from trinity.common.models.call import PendingCall, end_ids
from trinity.common.models.chat_format import reply_prefix
from trinity.common.models.continuation import Turn
from trinity.common.models.history import ChatHistory, Prompt, make_prompt
from trinity.common.models.recorder import (
    REPLY_NAMES,
    RecordedCall,
    name_of,
    spans_of,
    version_info,
)
from trinity.common.models.settings import Sampling
from trinity.common.ports.reply import ParsedReply, ToolCall
from trinity.errors import PromptTooLongError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from trinity.common.models.chat_format import ChatFormat, Message
    from trinity.common.models.history import Conversation
    from trinity.common.models.settings import ModelSettings
    from trinity.common.ports import Completion, ReplyParser, RunKey

__all__ = ["Calls", "ChatCompletion", "ChatRequest", "Exchanges", "canonical_messages"]


def canonical_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages as chat templates read them.

    A list of text parts is their text, no content is an empty one, a developer is the system, the
    arguments of a tool call are an object, and reasoning stands under ``reasoning_content``. What
    has no such form, as a picture or arguments that are no object, stays as it is.

    >>> canonical_messages([{"role": "developer", "content": [{"type": "text", "text": "Hi"}]}])
    ({'role': 'system', 'content': 'Hi'},)
    """
    return tuple(_canonical(message) for message in messages)


def _canonical(message: Message) -> Message:
    made = {key: value for key, value in message.items() if value is not None}
    if made.get("role") == "developer":
        made["role"] = "system"
    made["content"] = _text(made.get("content", ""))
    if "tool_calls" in made:
        made["tool_calls"] = [_call(call) for call in made["tool_calls"]]
        if not made["tool_calls"]:
            del made["tool_calls"]
    if "reasoning" in made and isinstance(made["reasoning"], str):
        reasoning = made.pop("reasoning")
        made.setdefault("reasoning_content", reasoning)
    return made


def _text(content: Any) -> Any:  # Any: a client's; a text where it is one
    if not isinstance(content, (list, tuple)):
        return content
    parts = (part.get("text") if isinstance(part, Mapping) else None for part in content)
    texts = [text for text in parts if isinstance(text, str)]
    return "".join(texts) if len(texts) == len(content) else content


def _call(call: Any) -> Any:  # Any: a client's
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        return call
    function = dict(call["function"])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return call
        if isinstance(arguments, Mapping):
            function["arguments"] = arguments
    return {**call, "function": function}


@dataclass(kw_only=True, slots=True, eq=False)
class ChatCompletion:
    """One reply. Its experience is made when somebody asks for it: until then a run holds little.

    Attributes:
        call: that it answers; None: nobody needs it any more.
        outcome: the engine's answer: how it ended, the version of the weights; :attr:`completion`
            is all of it.
        parsed: what it says; the ids of its tool calls are ours, and nobody can guess them.
        conversation: that may go on after it; None: a plain text, which cannot.
        name: of the exchange, unique in the run.
        key: of the request.
        turn: that was asked; None: a plain text.
        num_prompt_tokens: of the request.
        text: that was sampled.
        info: of the experience: what the exchange continues, and more.
        metrics: of the experience.
        eid: of the experience.
        made: the experience, once it was asked for.
    """

    call: PendingCall | None
    outcome: Completion
    parsed: ParsedReply
    conversation: Conversation | None
    name: str
    key: RunKey
    turn: Turn | None
    num_prompt_tokens: int
    text: str
    info: dict[str, Any]  # Any: what is noted
    metrics: dict[str, float]
    eid: EID = field(default_factory=EID)
    made: Experience | None = None
    num_sampled: int = field(init=False)  # tokens

    def __post_init__(self) -> None:
        """Hold ids and log-probabilities once: a conversation has them, as arrays."""
        self.num_sampled = len(self.outcome.token_ids)
        if self.conversation is not None:
            self.outcome = replace(self.outcome, token_ids=(), logprobs=())

    @property
    def completion(self) -> Completion:
        """Return the engine's answer, with the ids and the log-probabilities of its tokens."""
        if self.conversation is None:
            return self.outcome
        added = self.conversation.added
        return replace(
            self.outcome,
            token_ids=tuple(added[len(added) - self.num_sampled :]),
            logprobs=tuple(self.conversation.sampled),
        )

    @property
    def finish_reason(self) -> str:
        """Return ``tool_calls`` where the reply calls tools, else ``stop`` or ``length``."""
        return "tool_calls" if self.parsed.tool_calls else self.outcome.finish_reason

    @property
    def prompt_token_ids(self) -> list[int]:
        """Return what the engine was asked with."""
        if self.conversation is None:
            ids: list[int] = self.experience.tokens.tolist()
        else:
            ids = self.conversation.ids.tolist()
        return ids[: self.num_prompt_tokens]

    @property
    def experience(self) -> Experience:
        """Return prompt and reply as they are trained; always the same object."""
        if self.made is None:
            self.made = self._experience()
        made = self.made
        self.info.setdefault(REPLY_NAMES, [[0, self.name]])
        if made.info is not self.info:  # a plain text's, which was made with the reply
            made.info, made.metrics, made.eid = self.info, self.metrics, self.eid
        return made

    def _experience(self) -> Experience:
        last, turn = self.conversation, self.turn
        assert last is not None
        assert turn is not None, "a conversation has messages"
        return Experience(
            tokens=_tensor(last),
            prompt_length=self.num_prompt_tokens,
            eid=self.eid,
            logprobs=list(last.sampled),  # type: ignore[arg-type]  # becomes a tensor
            temperature=last.temperature,
            truncate_status=self._truncate_status,
            info=self.info,
            metrics=self.metrics,
            prompt_text=last.prompt_text + reply_prefix(turn.messages),
            response_text=self.text,
            messages=[*map(dict, turn.messages), self.parsed.message()],
            tools=[*map(dict, turn.tools)] or None,
        )

    @property
    def _truncate_status(self) -> str | None:
        return "response_truncated" if self.outcome.finish_reason == "length" else None


def _tensor(conversation: Conversation) -> Tensor:
    import numpy as np
    import torch

    return torch.from_numpy(np.array(conversation.ids, dtype=np.int64))


Calls = Literal["read", "text", "forced"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """A request as the engine will be asked it.

    ``prompt.token_ids`` are the ids, ``prompt.continues`` the recorded conversation that they begin
    with (None: there is none), ``prompt.broken`` why recorded replies are not all gone on with.
    """

    turn: Turn
    prompt: Prompt


class Exchanges:
    """Asks for one run on behalf of clients that speak in messages; many threads may use it.

    Args:
        chat_format: tokenizer and chat template.
        history: of the run.
        settings: of the model.
        parser: reads replies.
        send: asks the engine with a prompt, its turn and the sampling.
        record: keeps replies of the run.
    """

    def __init__(
        self,
        *,
        chat_format: ChatFormat,
        history: ChatHistory,
        settings: ModelSettings,
        parser: ReplyParser,
        send: Callable[[Prompt, Turn | None, Sampling], PendingCall],
        record: Callable[[Sequence[RecordedCall]], None],
    ) -> None:
        self._chat_format = chat_format
        self._history = history
        self._settings = settings
        self._parser = parser
        self._send = send
        self._record = record

    def prompt(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Message] = (),
        options: Mapping[str, Any] | None = None,
        temperature: float | None = None,
    ) -> ChatRequest:
        """Return what the engine is to be asked; nothing is sent yet.

        Args:
            messages: of a client; see :func:`~trinity.common.models.exchange.canonical_messages`.
            tools: descriptions for the chat template.
            options: further names that the template reads, as ``enable_thinking`` (Any: as it
                wants them).
            temperature: of the request; None: the model's.

        Raises:
            ModelError: the chat template refuses the messages.
        """
        own = dict(options or {})
        thinking = own.pop("enable_thinking", None)
        turn = Turn(
            messages=canonical_messages(messages),
            tools=tuple(tools),
            enable_thinking=self._settings.enable_thinking if thinking is None else thinking,
            options=own,
        )
        prompt = make_prompt(
            turn,
            history=self._history,
            chat_format=self._chat_format,
            temperature=self._settings.temperature if temperature is None else temperature,
            keeps_reasoning=self._settings.keep_reasoning,
        )
        before = prompt.continues
        return ChatRequest(
            turn=turn if before is None else turn.sharing(before.turn), prompt=prompt
        )

    def send(self, asked: ChatRequest, **sampling: Any) -> PendingCall:
        """Ask the engine; ``call.future`` gives its completions.

        Args:
            asked: from :meth:`prompt`.
            **sampling: as :meth:`ModelWrapper.chat` takes it, ``temperature`` as it was given to
                :meth:`prompt` (Any: each option's own type; None: the default).

        Raises:
            PromptTooLongError: it leaves no room for a reply. A chat is never cut.
            ModelError: an option is unknown, or the run is over.
        """
        self._check_room(asked.prompt)
        return self._send(asked.prompt, asked.turn, Sampling.of(sampling))

    def send_text(self, text: str | Sequence[int], **sampling: Any) -> PendingCall:
        """Ask the engine to go on with a plain text, or with the token ids of one.

        Args:
            text: that is gone on with.
            **sampling: as for :meth:`send`.

        Raises:
            PromptTooLongError: it leaves no room for a reply.
            ModelError: an option is unknown, or the run is over.
        """
        if isinstance(text, str):
            ids = tuple(self._chat_format.encode(text, add_special_tokens=True))
            prompt = Prompt(token_ids=ids, text=text)
        else:
            shown = self._chat_format.decode(text, skip_special_tokens=False)
            prompt = Prompt(token_ids=tuple(text), text=shown)
        self._check_room(prompt)
        return self._send(prompt, None, Sampling.of(sampling))

    def replies(
        self,
        call: PendingCall,
        completions: Sequence[Completion],
        *,
        calls: Calls = "read",
        max_calls: int | None = None,
    ) -> list[ChatCompletion]:
        """Return the replies as they are served; nothing is recorded yet.

        Args:
            call: from :meth:`send`.
            completions: that its future gave.
            calls: of tools: ``read`` out of the replies; left as ``text``, as they are where the
                request has no tools; or each reply is one, as a JSON object (``forced``).
            max_calls: further ones of a reply are left out.
        """
        said = [
            _at_most(max_calls, self._parsed(call, completion, calls=calls))
            for completion in completions
        ]
        return [
            self._reply(call, completion, parsed, index=index)
            for index, (completion, parsed) in enumerate(zip(completions, said, strict=True))
        ]

    def keep(self, reply: ChatCompletion) -> None:
        """Note that a reply was served: it is trained, and a later request may go on with it."""
        self.offer(reply)
        self.train(reply)

    def offer(self, reply: ChatCompletion) -> None:
        """Let a later request go on with a reply, whether or not it was heard."""
        if reply.conversation is not None:
            self._history.add(reply.conversation)

    def train(self, reply: ChatCompletion) -> None:
        """Record a reply that was heard."""
        self._record([RecordedCall(key=reply.key, said=reply, conversation=reply.conversation)])

    def _check_room(self, prompt: Prompt) -> None:
        length, limit = len(prompt.token_ids), self._settings.prompt_limit
        if length > limit:
            raise PromptTooLongError(
                f"the chat has {length} tokens, and a prompt may have {limit}. Shorten it, or "
                f"raise model.max_prompt_tokens and model.max_model_len."
            )

    def _reply(
        self, call: PendingCall, completion: Completion, parsed: ParsedReply, *, index: int
    ) -> ChatCompletion:
        name = name_of(call.request.key.request, index)
        text = self._chat_format.decode(completion.token_ids)
        if text == parsed.content:
            text = parsed.content  # held once
        conversation = call.conversation(
            completion, message=parsed.message(), chat_format=self._chat_format, name=name
        )
        return ChatCompletion(
            call=call,
            outcome=completion,
            parsed=parsed,
            conversation=conversation,
            name=name,
            key=call.request.key,
            turn=call.turn,
            num_prompt_tokens=len(call.prompt.token_ids),
            text=text,
            info=version_info(spans_of(completion))
            | _notes(call, completion, parsed)
            | {"request": name},
            metrics=_measured(call.prompt),
            made=call.experience(completion, text=text, name=name)
            if conversation is None
            else None,
        )

    def _parsed(self, call: PendingCall, completion: Completion, *, calls: Calls) -> ParsedReply:
        plain = self._chat_format.decode(_said_ids(completion))
        raw = self._chat_format.decode(_said_ids(completion), skip_special_tokens=False)
        stop = completion.stop_reason
        if stop:
            plain, raw = plain.partition(stop)[0], raw.partition(stop)[0]
        if call.turn is None:
            return ParsedReply(content=plain)
        if calls == "forced":
            return _forced(plain)
        tools = call.turn.tools if calls == "read" else ()
        parsed = self._parser.parse(raw, prompt=call.prompt.text, tools=tools)
        is_whole = parsed.content == raw
        content = plain if is_whole else self._chat_format.without_special_tokens(parsed.content)
        return replace(parsed, content=content)


def _said_ids(completion: Completion) -> tuple[int, ...]:
    return completion.token_ids[: len(completion.token_ids) - len(end_ids(completion))]


def _at_most(max_calls: int | None, parsed: ParsedReply) -> ParsedReply:
    if max_calls is None or len(parsed.tool_calls) <= max_calls:
        return parsed
    return replace(parsed, tool_calls=parsed.tool_calls[:max_calls])


def _forced(text: str) -> ParsedReply:
    """Return the call that the text is; one that was cut stays content."""
    try:
        call = json.loads(text)
        found = ToolCall(name=call["name"], arguments=call["arguments"])
    except (ValueError, TypeError, KeyError):
        return ParsedReply(content=text, is_malformed=True)
    return ParsedReply(content="", tool_calls=(found,))


def _notes(call: PendingCall, completion: Completion, parsed: ParsedReply) -> dict[str, Any]:
    """Return what is noted of a reply, without what is not so."""
    prompt = call.prompt
    notes: dict[str, Any] = {
        "finish_reason": completion.finish_reason,
        "continues": prompt.continues.name if prompt.continues is not None else None,
        "chain_broken": prompt.broken,
        "constrained": call.request.structure is not None or None,
        "malformed_tool_call": parsed.is_malformed or None,
    }
    return {name: value for name, value in notes.items() if value is not None}


def _measured(prompt: Prompt) -> dict[str, float]:
    """Return the metrics of a request that holds a recorded reply; others have none."""
    if prompt.broken is not None:
        return {"api/continued_ratio:mean": 0.0, f"api/broken_{prompt.broken}:sum": 1.0}
    if prompt.continues is None:
        return {}
    return {"api/continued_ratio:mean": 1.0, "api/continued:sum": 1.0}
