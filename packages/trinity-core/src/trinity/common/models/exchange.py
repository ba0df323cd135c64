"""The calls of an API's clients: a chat becomes a prompt, the engine's answer a recorded reply.

    messages, tools --prompt--> Prompt --send--> PendingCall --engine--> [Completion]
                                                                             |
    what is trained <--keep-- RecordedCall <-------------replies-------------+

What a client sends back later is compared with what was served, never with the engine's text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from trinity.common.models.calls import PendingCall, RunCalls, RunRequests, end_ids
from trinity.common.models.canonical_messages import canonical_messages
from trinity.common.models.chat import Chat
from trinity.common.models.chat_history import Prompt, make_prompt
from trinity.common.models.run_endpoints import RunEndpoints
from trinity.common.models.settings import Sampling
from trinity.common.ports.request import ParsedReply, ToolCall
from trinity.errors import PromptTooLongError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.common.models.chat_format import Message
    from trinity.common.models.recorded_calls import RecordedCall
    from trinity.common.ports import Completion, ReplyParser

__all__ = ["Exchanges", "PendingCall", "RunEndpoints", "RunRequests", "ToolCallMode"]

#: tool calls are read out of the replies; left as text; or each reply is one, as a JSON object
ToolCallMode = Literal["read", "text", "forced"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchanges(RunCalls):
    """Calls the model for one run as an API's clients do: messages in, messages out.

    Attributes:
        parser: reads replies; None: all is content.
    """

    parser: ReplyParser | None = None

    def prompt(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Message] = (),
        options: Mapping[str, Any] | None = None,
        temperature: float | None = None,
    ) -> Prompt:
        """Return what the engine is to be asked; nothing is sent yet.

        ``token_ids`` are the ids, ``continues`` the recorded conversation that they begin with
        (None: there is none), ``broken`` why recorded replies are not all gone on with.

        Args:
            messages: of a client; see :func:`~trinity.common.models.chat.canonical_messages`.
            tools: descriptions for the chat template.
            options: further names that the template reads, as ``enable_thinking`` (Any: as it
                wants them).
            temperature: of the request; None: the model's.

        Raises:
            ModelError: the chat template refuses the messages.
        """
        own = dict(options or {})
        thinking = own.pop("enable_thinking", None)
        chat = Chat(
            messages=canonical_messages(messages),
            tools=tuple(tools),
            enable_thinking=self.settings.enable_thinking if thinking is None else thinking,
            options=own,
        )
        return make_prompt(
            chat,
            history=self.history,
            chat_format=self.chat_format,
            temperature=self.settings.temperature if temperature is None else temperature,
            keeps_reasoning=self.settings.keep_reasoning,
        )

    def send(self, prompt: Prompt, **sampling: Any) -> PendingCall:
        """Ask the engine.

        Args:
            prompt: from :meth:`prompt`.
            **sampling: as :meth:`ModelWrapper.chat` takes it, ``temperature`` as it was given to
                :meth:`prompt` (Any: each option's own type; None: the default).

        Raises:
            PromptTooLongError: it leaves no room for a reply. A chat is never cut.
            ModelError: an option is unknown, or the run is over.
        """
        length, limit = len(prompt.token_ids), self.settings.prompt_limit
        if length > limit:
            raise PromptTooLongError(
                f"the chat has {length} tokens, and a prompt may have {limit}. Shorten it, or "
                f"raise model.max_prompt_tokens and model.max_model_len."
            )
        return self.submit(prompt, Sampling.of(sampling))

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
            return self.send(self.text_prompt(text), **sampling)
        shown = self.chat_format.decode(text, skip_special_tokens=False)
        return self.send(Prompt(token_ids=tuple(text), text=shown), **sampling)

    def replies(
        self,
        call: PendingCall,
        completions: Sequence[Completion],
        *,
        calls: ToolCallMode = "read",
        max_calls: int | None = None,
    ) -> list[RecordedCall]:
        """Return the replies as they are served; nothing is recorded yet.

        Args:
            call: from :meth:`send`.
            completions: that its future gave.
            calls: of tools, see :data:`ToolCallMode`; ``read`` where the request has no tools
                leaves the replies as they are.
            max_calls: further ones of a reply are left out, and no chat goes on with its ids.
        """
        chat = None if call.prompt.chat.is_plain_text else call.prompt.chat
        replies = []
        for index, completion in enumerate(completions):
            whole = self._parsed(call, completion, calls=calls)
            parsed = replace(whole, tool_calls=whole.tool_calls[:max_calls])
            text = self.chat_format.decode(completion.token_ids)
            if text == parsed.content:
                text = parsed.content  # held once
            reply = self._recorded(call, completion, parsed, text=text, index=index, chat=chat)
            if len(parsed.tool_calls) < len(whole.tool_calls):
                reply.conversation = replace(reply.conversation, unseen="calls_left_out")
            reply.info |= {**_notes(call, completion, parsed), "request": reply.name}
            reply.metrics |= _measured(call.prompt)
            replies.append(reply)
        return replies

    def keep(self, reply: RecordedCall) -> None:
        """Note that a reply was served: it is trained, and a later request may go on with it."""
        self.offer(reply)
        self.train([reply])

    def train(self, replies: Sequence[RecordedCall]) -> None:
        """Record replies that were heard."""
        self.run.heard(reply.version for reply in replies)
        self.recorder.add(replies)

    def _parsed(
        self, call: PendingCall, completion: Completion, *, calls: ToolCallMode
    ) -> ParsedReply:
        ids = completion.token_ids[: len(completion.token_ids) - len(end_ids(completion))]
        plain, raw = self.chat_format.decode(ids), self._raw(ids)
        stop, chat = completion.stop_reason, call.prompt.chat
        if stop:
            plain = _before(stop, ids, self.chat_format.decode)
            raw = _before(stop, ids, self._raw)
        if chat.is_plain_text or self.parser is None:
            return ParsedReply(content=plain)
        if calls == "forced":
            return _forced(plain)
        tools = chat.tools if calls == "read" else ()
        parsed = self.parser.parse(raw, prompt=call.prompt.text, tools=tools)
        is_whole = parsed.content == raw
        content = plain if is_whole else self.chat_format.without_special_tokens(parsed.content)
        return replace(parsed, content=content)


def _before(stop: str, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> str:
    """Return the text before the match that the last token completes, not an earlier one."""
    text, known = decode(ids), decode(ids[:-1]).rstrip("\ufffd")
    at = text.find(stop, max(0, len(known) - len(stop) + 1))
    return text.partition(stop)[0] if at < 0 else text[:at]


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
