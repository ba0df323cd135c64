"""A form in which clients ask and hear: how a body is read, how an answer is written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trinity_serve.endpoint.chat import ChatCompletion, ChatRequest, Retry
    from trinity_serve.endpoint.fields import Refusal

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
        self,
        served: ChatCompletion,
        request: ChatRequest,
        *,
        model: str,
        decode: Callable[[int], str],
    ) -> Json:
        """Return the body; ``decode`` gives the text of a token."""


class Streamer(Protocol):
    """Writes an answer as events."""

    def __call__(
        self,
        served: ChatCompletion,
        request: ChatRequest,
        *,
        model: str,
        decode: Callable[[int], str],
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
