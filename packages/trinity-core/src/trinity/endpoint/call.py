"""One call of the model as all routes understand it, and the dialects in which clients ask."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trinity.common.models.exchange import ChatCompletion
    from trinity.common.ports import Structure
    from trinity.endpoint.chat import ChatRequest
    from trinity.endpoint.fields import Refusal


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """What tells whether a call was made before."""

    body: bytes  # a digest: calls of equal bodies may be one
    count: int = 0  # how often the client has already tried
    key: str = ""  # of idempotency; empty: none was sent


@dataclass(frozen=True, kw_only=True, slots=True)
class CanonicalCall:
    """What is asked."""

    messages: tuple[Mapping[str, Any], ...] = ()  # Any: as chat templates take them
    prompt: str | tuple[int, ...] | None = None  # plain text or its token ids, no messages
    tools: tuple[Mapping[str, Any], ...] = ()
    template_options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)  # of models.settings.Sampling
    structure: Structure | None = None
    calls: Literal["read", "text", "forced"] = "read"  # of tools; forced: the reply is one
    max_calls: int | None = None  # further ones are left out
    agent: str = ""
    retry: Retry


@dataclass(kw_only=True, slots=True, eq=False)
class Served:
    """What a call is answered with."""

    run: str  # batch/task/run
    number: int  # of the call in its run, in order of arrival
    created: int  # seconds since 1970
    num_prompt_tokens: int
    replies: tuple[ChatCompletion, ...]  # one for each choice
    is_delivered: bool = False  # whether a client hears it

    @property
    def prompt_token_ids(self) -> list[int]:
        """Return what the engine was asked with."""
        return self.replies[0].prompt_token_ids

    @property
    def version(self) -> int:
        """Return the oldest version of the weights that a token was sampled with."""
        return min(int(reply.outcome.weight_version) for reply in self.replies)

    @property
    def num_sampled(self) -> int:
        """Return how many tokens were sampled."""
        return sum(reply.num_sampled for reply in self.replies)


Json = dict[str, Any]  # Any: what JSON holds


class Reader(Protocol):
    """Reads a body."""

    def __call__(
        self,
        body: Mapping[str, Any],
        *,
        agent: str,
        retry: Retry,
        template_reads: Callable[[str], bool],
    ) -> ChatRequest:
        """Return what the body asks for; a ``Refusal`` says what cannot be honoured."""


class Writer(Protocol):
    """Writes an answer as one body."""

    def __call__(
        self, served: Served, request: ChatRequest, *, model: str, decode: Callable[[int], str]
    ) -> Json:
        """Return the body; ``decode`` gives the text of a token."""


class Streamer(Protocol):
    """Writes an answer as events."""

    def __call__(
        self, served: Served, request: ChatRequest, *, model: str, decode: Callable[[int], str]
    ) -> Iterator[bytes]:
        """Yield the events."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """One of them."""

    read: Reader
    write: Writer
    stream: Streamer
    error: Callable[[Refusal], bytes]  # the body of a refusal


def event(body: Any, *, name: str = "") -> bytes:  # Any: what JSON holds
    """Return a server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + dumped(body) + b"\n\n"


def dumped(body: Any) -> bytes:
    """Return the JSON."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
