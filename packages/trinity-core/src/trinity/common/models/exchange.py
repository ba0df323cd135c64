"""Chats over an API: a request becomes a prompt, and an answer the message that is served.

    messages, tools --prompt--> Asked --send--> Call --engine--> [Completion]
                                                                     |
    what is trained <--keep-- Reply <-------------replies------------+

What a client sends back later is compared with what was served, never with the engine's text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trinity.common.models.call import Call, end_ids
from trinity.common.models.history import Conversation, History, Prompt, Turn, make_prompt
from trinity.common.models.messages import canonical_messages
from trinity.common.models.settings import Sampling
from trinity.errors import PromptTooLongError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.models.chat_format import ChatFormat, Message
    from trinity.common.models.settings import ModelSettings
    from trinity.common.ports import Completion, ParsedReply, ReplyParser

__all__ = ["Asked", "Exchanges", "Reply"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request as the engine will be asked it.

    ``prompt.token_ids`` are the ids, ``prompt.continues`` the recorded conversation that they begin
    with (None: there is none), ``prompt.broken`` why recorded replies are not all gone on with.
    """

    turn: Turn
    prompt: Prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """One reply, as it is served and as it is trained.

    Attributes:
        call: that it answers.
        completion: the engine's answer: ids, log-probabilities, the version of the weights.
        parsed: what it says; the ids of its tool calls are ours, and nobody can guess them.
        experience: prompt and reply; its ``info`` says what the exchange continues.
        conversation: that may go on after it.
        name: of the exchange, unique in the run.
    """

    call: Call
    completion: Completion
    parsed: ParsedReply
    experience: Experience
    conversation: Conversation | None
    name: str

    @property
    def finish_reason(self) -> str:
        """Return ``tool_calls`` where the reply calls tools, else ``stop`` or ``length``."""
        return "tool_calls" if self.parsed.tool_calls else self.completion.finish_reason


class Exchanges:
    """Asks for one run on behalf of clients that speak in messages; many threads may use it.

    Args:
        chat_format: tokenizer and chat template.
        history: of the run.
        settings: of the model.
        parser: reads replies.
        send: asks the engine with a prompt, its turn and the sampling.
        record: keeps an experience of the run, with the call that it is of.
    """

    def __init__(
        self,
        *,
        chat_format: ChatFormat,
        history: History,
        settings: ModelSettings,
        parser: ReplyParser,
        send: Callable[[Prompt, Turn, Sampling], Call],
        record: Callable[[Call, Experience], None],
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
    ) -> Asked:
        """Return what the engine is to be asked; nothing is sent yet.

        Args:
            messages: of a client; see :func:`~trinity.common.models.messages.canonical_messages`.
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
        return Asked(turn=turn, prompt=prompt)

    def send(self, asked: Asked, **sampling: Any) -> Call:
        """Ask the engine; ``call.future`` gives its completions.

        Args:
            asked: from :meth:`prompt`.
            **sampling: as :meth:`ModelWrapper.chat` takes it, ``temperature`` as it was given to
                :meth:`prompt` (Any: each option's own type; None: the default).

        Raises:
            PromptTooLongError: it leaves no room for a reply. A chat is never cut.
            ModelError: an option is unknown, or the run is over.
        """
        length, limit = len(asked.prompt.token_ids), self._settings.prompt_limit
        if length > limit:
            raise PromptTooLongError(
                f"the chat has {length} tokens, and a prompt may have {limit}. Shorten it, or "
                f"raise model.max_prompt_tokens and model.max_model_len."
            )
        return self._send(asked.prompt, asked.turn, Sampling.of(sampling))

    def replies(
        self, call: Call, completions: Sequence[Completion], *, reads_calls: bool = True
    ) -> list[Reply]:
        """Return the replies as they are served; nothing is recorded yet.

        Args:
            call: from :meth:`send`.
            completions: that its future gave.
            reads_calls: False: tool calls stay text, as they do where the request has no tools.
        """
        return [
            self._reply(call, completion, index=index, reads_calls=reads_calls)
            for index, completion in enumerate(completions)
        ]

    def keep(self, reply: Reply) -> None:
        """Note that a reply was served: it is trained, and a later request may go on with it."""
        if reply.conversation is not None:
            self._history.add(reply.conversation)
        self._record(reply.call, reply.experience)

    def _reply(self, call: Call, completion: Completion, *, index: int, reads_calls: bool) -> Reply:
        assert call.turn is not None, "a chat has messages"
        plain = self._chat_format.decode(_said_ids(completion))
        parsed = self._parsed(call, completion, plain, tools=call.turn.tools if reads_calls else ())
        name = f"{call.request.key.request}-{index}"
        experience = call.experience(
            completion, text=self._chat_format.decode(completion.token_ids)
        )
        experience.messages = [dict(message) for message in call.turn.messages]
        experience.tools = [dict(tool) for tool in call.turn.tools] or None
        experience.info |= _notes(call.prompt, parsed, name)
        experience.metrics |= _measured(call.prompt)
        conversation = call.conversation(
            completion, message=parsed.message(), chat_format=self._chat_format, name=name
        )
        return Reply(
            call=call,
            completion=completion,
            parsed=parsed,
            experience=experience,
            conversation=conversation,
            name=name,
        )

    def _parsed(
        self, call: Call, completion: Completion, plain: str, *, tools: Sequence[Message]
    ) -> ParsedReply:
        raw = self._chat_format.decode(_said_ids(completion), skip_special_tokens=False)
        stop = completion.stop_reason
        if stop:
            plain, raw = plain.partition(stop)[0], raw.partition(stop)[0]
        parsed = self._parser.parse(raw, prompt=call.prompt.text, tools=tools)
        is_whole = parsed.content == raw
        content = plain if is_whole else self._chat_format.without_special_tokens(parsed.content)
        return replace(parsed, content=content)


def _said_ids(completion: Completion) -> tuple[int, ...]:
    return completion.token_ids[: len(completion.token_ids) - len(end_ids(completion))]


def _notes(prompt: Prompt, parsed: ParsedReply, name: str) -> dict[str, Any]:
    notes: dict[str, Any] = {"request": name}
    if prompt.continues is not None:
        notes["continues"] = prompt.continues.name
    if prompt.broken is not None:
        notes["chain_broken"] = prompt.broken
    if parsed.is_malformed:
        notes["malformed_tool_call"] = True
    return notes


def _measured(prompt: Prompt) -> dict[str, float]:
    """Return the metrics of a request that holds a recorded reply; others have none."""
    if prompt.broken is not None:
        return {"api/continued_ratio:mean": 0.0, f"api/broken_{prompt.broken}:sum": 1.0}
    return {} if prompt.continues is None else {"api/continued_ratio:mean": 1.0}
