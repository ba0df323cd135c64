"""One call of a model: the request on its way, and what its answer becomes."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, replace
from sys import intern
from typing import TYPE_CHECKING

from trinity.common.experience import Experience
from trinity.common.models.history import Conversation, Prompt, Turn, recorded
from trinity.common.models.recorder import reply_info, spans_of, version_info

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from torch import Tensor

    from trinity.common.models.chat_format import ChatFormat, Message
    from trinity.common.models.clients import RunEndpoints
    from trinity.common.ports import Completion, GenerationRequest, RunKey

__all__ = ["PendingCall", "RunRequests", "end_ids"]


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
    """A request that was sent."""

    prompt: Prompt
    turn: Turn | None  # None: a plain text
    is_cut: bool  # the prompt was too long: its beginning is missing
    request: GenerationRequest
    future: Future[list[Completion]]

    def experience(self, completion: Completion, *, text: str, name: str) -> Experience:
        """Return the prompt and one reply as an experience.

        Args:
            completion: the reply.
            text: of it.
            name: of the exchange.
        """
        return Experience(
            tokens=[*self.prompt.token_ids, *completion.token_ids],  # type: ignore[arg-type]  # becomes a tensor
            prompt_length=len(self.prompt.token_ids),
            logprobs=list(completion.logprobs),  # type: ignore[arg-type]
            temperature=self.request.temperature,
            truncate_status=self._truncate_status(completion),
            info=version_info(spans_of(completion)) | reply_info([(0, name)]),
            prompt_text=self.prompt.text,
            response_text=text,
        )

    def conversation(
        self, completion: Completion, *, message: Message, chat_format: ChatFormat, name: str
    ) -> Conversation | None:
        """Return the conversation that can go on after this reply; None: there is none.

        Args:
            completion: the reply.
            message: the reply as a message of the assistant.
            chat_format: of the model.
            name: of the exchange.
        """
        if self.turn is None or self.is_cut:
            return None
        end = end_ids(completion)
        return recorded(
            self.prompt,
            self.turn,
            completion,
            message=message,
            reply_text=chat_format.decode(completion.token_ids, skip_special_tokens=False),
            end_text=intern(chat_format.decode(end, skip_special_tokens=False)) if end else "",
            temperature=self.request.temperature,
            name=name,
        )

    def _truncate_status(self, completion: Completion) -> str | None:
        if self.is_cut:
            return "prompt_truncated"
        return "response_truncated" if completion.finish_reason == "length" else None


def end_ids(completion: Completion) -> tuple[int, ...]:
    """Return the id of the token that ended the reply; none where it was cut, or by a string."""
    is_ended = completion.finish_reason == "stop" and completion.stop_reason is None
    return completion.token_ids[-1:] if is_ended else ()
