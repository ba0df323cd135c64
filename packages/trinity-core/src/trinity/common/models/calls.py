"""The calls of a model by one run: a prompt is sent, the engine's answer becomes a reply.

Prompt --submit--> PendingCall --engine--> [Completion] --text_replies--> RecordedCall
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, replace
from sys import intern
from typing import TYPE_CHECKING

from trinity.common.models.chat_format import reply_prefix
from trinity.common.models.chat_history import Prompt, conversation_after, spans_of
from trinity.common.models.recorded_calls import RecordedCall, version_info
from trinity.common.ports.request import ParsedReply
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future

    from torch import Tensor

    from trinity.common.experience import Experience
    from trinity.common.models.chat import Chat
    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.models.chat_history import ChatHistory
    from trinity.common.models.recorded_calls import CallRecorder
    from trinity.common.models.run_endpoints import RunEndpoints
    from trinity.common.models.settings import ModelSettings, Sampling
    from trinity.common.ports import Completion, GenerationRequest, RolloutEngine, RunKey


class RunRequests:
    """Which run a model wrapper and its clones belong to; counts their requests.

    Attributes:
        key: of the run.
        broken: the tokens of each conversation that a template broke, with its earlier chains.
        has_cut_prompts: whether a prompt was too long.
        is_over: whether nothing more may be asked.
        endpoints: of the wrapper and its clones.
        oldest: the version of the oldest weights that answered; None: nothing was answered.
    """

    def __init__(self, key: RunKey) -> None:
        self.endpoints: list[RunEndpoints] = []
        self._lock = threading.Lock()
        self.begin(key)

    def begin(self, key: RunKey) -> None:
        """Belong to another run from now on."""
        self.key = key
        self.broken: list[tuple[Tensor, list[Experience]]] = []
        self.has_cut_prompts = self.is_over = False
        self.oldest: int | None = None
        self._count = itertools.count(key.request)

    def close_endpoints(self) -> None:
        """Refuse what comes by the endpoints, and cancel what is being answered."""
        for endpoints in self.endpoints:
            if endpoints.session is not None:
                endpoints.close()

    def heard(self, versions: Iterable[int]) -> None:
        """Note the weights that replies were sampled with."""
        with self._lock:
            known = [] if self.oldest is None else [self.oldest]
            self.oldest = min([*known, *versions], default=None)

    def next_key(self) -> RunKey:
        """Return the key of the next request."""
        return replace(self.key, request=next(self._count))


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingCall:
    """A request that was sent; ``future`` gives its completions."""

    prompt: Prompt
    request: GenerationRequest
    future: Future[list[Completion]]
    is_cut: bool = False  # the prompt was too long: its beginning is missing


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCalls:
    """Calls the model for one run; many threads may use it.

    Attributes:
        engine: that samples.
        chat_format: tokenizer and chat template.
        settings: of the model.
        run: counts the requests.
        history: of the run.
        recorder: of the run.
    """

    engine: RolloutEngine
    chat_format: ChatFormat
    settings: ModelSettings
    run: RunRequests
    history: ChatHistory
    recorder: CallRecorder

    def text_prompt(self, text: str) -> Prompt:
        """Return the prompt of a plain text."""
        ids = self.chat_format.encode(text, add_special_tokens=True)
        return Prompt(token_ids=tuple(ids), text=text)

    def submit(self, prompt: Prompt, sampling: Sampling, *, is_cut: bool = False) -> PendingCall:
        """Ask the engine with a prompt that fits.

        Raises:
            ModelError: the run is over.
        """
        if self.run.is_over:
            raise ModelError("the run was left behind: its time was up, or the whole was stopped.")
        self.settings.check_adapter()
        key = self.run.next_key()
        request = sampling.request(prompt.token_ids, key=key, settings=self.settings)
        future = self.engine.submit(request)
        return PendingCall(prompt=prompt, request=request, future=future, is_cut=is_cut)

    def text_replies(
        self, call: PendingCall, completions: Sequence[Completion]
    ) -> list[RecordedCall]:
        """Return the replies as a workflow has them: all that was said is content."""
        texts = [self.chat_format.decode(completion.token_ids) for completion in completions]
        return [
            self._recorded(call, completion, ParsedReply(content=text), text=text, index=index)
            for index, (completion, text) in enumerate(zip(completions, texts, strict=True))
        ]

    def offer(self, reply: RecordedCall) -> None:
        """Let a later request go on with a reply, whether or not it was heard."""
        if reply.can_continue:
            self.history.add(reply.conversation)

    def _recorded(
        self,
        call: PendingCall,
        completion: Completion,
        parsed: ParsedReply,
        *,
        text: str,
        index: int,
        chat: Chat | None = None,
    ) -> RecordedCall:
        end = end_ids(completion)
        plain = {"role": "assistant", "content": parsed.content}
        conversation = conversation_after(
            call.prompt,
            completion,
            message=plain if chat is None else parsed.message(),
            reply_text=self._raw(completion.token_ids),
            end_text=intern(self._raw(end)) if end else "",
            temperature=call.request.temperature,
            name=f"{call.request.key.request}-{index}",
        )
        prefix = reply_prefix(call.prompt.chat.messages)
        return RecordedCall(
            key=call.request.key,
            outcome=completion,
            parsed=parsed,
            conversation=conversation,
            chat=chat,
            num_prompt_tokens=len(call.prompt.token_ids),
            opening=prefix if call.prompt.text.endswith(prefix) else "",
            text=text,
            truncate_status=_truncate_status(call, completion),
            info=version_info(spans_of(completion)) | self.settings.adapter_info,
            metrics={},
        )

    def _raw(self, token_ids: Sequence[int]) -> str:
        return self.chat_format.decode(token_ids, skip_special_tokens=False)


def end_ids(completion: Completion) -> tuple[int, ...]:
    """Return the id of the token that ended the reply; none where it was cut, or by a string."""
    is_ended = completion.finish_reason == "stop" and completion.stop_reason is None
    return completion.token_ids[-1:] if is_ended else ()


def _truncate_status(call: PendingCall, completion: Completion) -> str | None:
    if call.is_cut:
        return "prompt_truncated"
    return "response_truncated" if completion.finish_reason == "length" else None
