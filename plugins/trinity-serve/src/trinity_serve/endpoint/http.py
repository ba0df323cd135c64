"""One HTTP exchange: its headers, its body, whether its client is still there."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs

from trinity_serve.endpoint.chat import Retry
from trinity_serve.endpoint.fields import Refusal, bad_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping

    from starlette.types import Receive, Scope, Send

MAX_BODY_BYTES = 64 * 2**20
COMMENT_EVERY_S = 10.0
EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_BEARER = "bearer "
Answer = TypeVar("Answer")


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


class Http:
    """A request and the way back.

    Attributes:
        headers: by their names in lower case.
        has_begun: whether a part of the answer was sent.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self.headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.has_begun = False

    @property
    def path(self) -> str:
        """Return what was asked for."""
        return str(self._scope["path"])[:200]

    @property
    def client(self) -> str:
        """Return the address that the request came from; empty: it is not known."""
        client = self._scope.get("client")
        return str(client[0]) if client else ""

    @property
    def key(self) -> str:
        """Return the key that the client shows; empty: none."""
        in_path: str = self._scope.get("path_params", {}).get("key", "")
        if in_path:
            return in_path
        shown = self.headers.get("authorization", "")
        if shown.lower().startswith(_BEARER):
            return shown[len(_BEARER) :].strip()
        return self.headers.get("x-api-key", "").strip()

    async def json(self) -> tuple[dict[str, Any], Retry]:
        """Return the body, and what tells whether it was sent before.

        Raises:
            Refusal: it is too long or no object.
            ClientGoneError: it was not sent whole.
        """
        raw = await self._body()
        return self._defaults() | _parsed(raw), self._retry(raw)

    def _defaults(self) -> dict[str, Any]:
        """Return the switches that the URL sets for every body, as the run's own clients do."""
        asked = parse_qs(self._scope.get("query_string", b"").decode("latin-1"))
        names = ["return_token_ids"]
        if self._scope["path"].endswith("/chat/completions"):  # elsewhere it is a number
            names.append("logprobs")
        return {name: True for name in names if asked.get(name) == ["true"]}

    def _retry(self, raw: bytes) -> Retry:
        count = self.headers.get("x-stainless-retry-count", "0")
        return Retry(
            body=hashlib.blake2b(
                raw, digest_size=16, key=self._scope["path"][-64:].encode()
            ).digest(),
            count=int(count) if count.isdecimal() and len(count) < 4 else 0,
            key=self.headers.get("idempotency-key", ""),
        )

    async def _body(self) -> bytes:
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > MAX_BODY_BYTES:
            raise _too_long()
        parts, total, goes_on = [], 0, True
        while goes_on:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            parts.append(message.get("body", b""))
            total += len(parts[-1])
            goes_on = message.get("more_body", False)
            if total > MAX_BODY_BYTES:
                raise _too_long()
        return b"".join(parts)

    @asynccontextmanager
    async def while_connected(self) -> AsyncIterator[None]:
        """Cancel what is inside when the client goes away.

        Raises:
            ClientGoneError: it did.
        """
        inside = asyncio.current_task()
        assert inside is not None, "the server runs every request in a task"
        watch = asyncio.create_task(self._until_gone())  # kept by no one: it holds this
        is_inside = True

        def leave(task: asyncio.Task[None]) -> None:
            if is_inside and not task.cancelled():
                inside.cancel()

        watch.add_done_callback(leave)
        try:
            yield
        except asyncio.CancelledError:
            if watch.done() and not watch.cancelled():
                inside.uncancel()
                raise ClientGoneError from None
            raise
        finally:
            is_inside = False
            watch.cancel()

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(
        self,
        status: int,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> None:
        """Send the whole answer."""
        given = {"content-type": content_type, "content-length": str(len(body)), **(headers or {})}
        await self.begin(status, headers=given)
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, status: int, *, headers: Mapping[str, str]) -> None:
        """Send status and headers."""
        self.has_begun = True
        pairs = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def stream(self, parts: Iterable[bytes]) -> None:
        """Send the parts as events, the last of which ends the answer."""
        if not self.has_begun:
            await self.begin(200, headers=EVENTS)
        await self.go_on(b"".join(parts), is_last=True)

    async def wait_for(self, answer: Awaitable[Answer]) -> Answer:
        """Return the answer; while there is none, comments keep the connection alive."""
        task = asyncio.ensure_future(answer)
        try:
            while not (await asyncio.wait([task], timeout=COMMENT_EVERY_S))[0]:
                if not self.has_begun:
                    await self.begin(200, headers=EVENTS)
                await self.go_on(b": the model is at work\n\n")
            return task.result()
        finally:
            task.cancel()

    async def go_on(self, part: bytes, *, is_last: bool = False) -> None:
        """Send a part of the body."""
        await self._send({"type": "http.response.body", "body": part, "more_body": not is_last})


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw.decode("utf-8-sig"), parse_constant=_no_constant)
        if b"\\u" in raw:
            json.dumps(body, ensure_ascii=False).encode()  # half a character cannot be written
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise bad_request(f"the body is no JSON that can be read: {reason[:200]}.") from error
    if not isinstance(body, dict):
        raise bad_request(f"the body is a {type(body).__name__}; send an object of JSON.")
    return body


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _too_long() -> Refusal:
    return Refusal(
        413,
        f"the body has more than {MAX_BODY_BYTES // 2**20} MiB; send fewer messages.",
        code="body_too_long",
        headers={"connection": "close"},
    )
