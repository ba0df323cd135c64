"""The routes, and what each does with a request that it cannot answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from starlette.routing import Mount, Route, Router

from trinity_serve.endpoint.anthropic import (
    anthropic_error,
    message_reply,
    message_stream,
    read_message,
)
from trinity_serve.endpoint.chat import chat_reply, chat_stream, read_chat
from trinity_serve.endpoint.completions import completion_reply, completion_stream, read_completion
from trinity_serve.endpoint.dialect import Dialect, dumped
from trinity_serve.endpoint.fields import Refusal
from trinity_serve.endpoint.http import ClientGoneError, Http
from trinity_serve.endpoint.responses import read_response, response_reply, response_stream

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from trinity_serve.endpoint.keys import Entry
    from trinity_serve.endpoint.service import EndpointService

logger = logging.getLogger("trinity.endpoint")


Further = Mapping[str, tuple[str, Callable[[Http], Awaitable[None]]]]


def build_app(service: EndpointService, *, further: Further = MappingProxyType({})) -> Router:
    """Return the application that a server runs.

    Args:
        service: what its routes share.
        further: routes beside the model's: the method of each path, and what answers it.
    """
    routes = _Routes(service)
    open_to_runs = [
        *(
            Route(path, _Handler("POST", partial(routes.ask, dialect=one), error=one.error))
            for path, one in _DIALECTS.items()
        ),
        Route("/v1/models", _Handler("GET", routes.models)),
        Route("/load", _Handler("GET", routes.load)),
    ]
    return Router(
        [
            *open_to_runs,
            Mount("/r/{key}", routes=open_to_runs),
            Route("/health", _Handler("GET", routes.health)),
            *(Route(path, _Handler(method, answer)) for path, (method, answer) in further.items()),
        ],
        redirect_slashes=False,
        default=_Handler("", routes.unknown),
    )


_DIALECTS = {
    "/v1/chat/completions": Dialect(
        read=read_chat, write=chat_reply, stream=chat_stream, error=Refusal.body
    ),
    "/v1/completions": Dialect(
        read=read_completion, write=completion_reply, stream=completion_stream, error=Refusal.body
    ),
    "/v1/responses": Dialect(
        read=read_response, write=response_reply, stream=response_stream, error=Refusal.body
    ),
    "/v1/messages": Dialect(
        read=read_message, write=message_reply, stream=message_stream, error=anthropic_error
    ),
}


class _Handler:
    """Runs one route; whatever goes wrong is answered in the shape that its clients know."""

    def __init__(
        self,
        method: str,
        answer: Callable[[Http], Awaitable[None]],
        *,
        error: Callable[[Refusal], bytes] = Refusal.body,
    ) -> None:
        self._method = method
        self._answer = answer
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        http = Http(scope, receive, send)
        try:
            if self._method not in {"", scope["method"]}:
                raise _wrong_method(scope, self._method)
            await self._answer(http)
        except ClientGoneError:
            return
        except Refusal as refusal:
            await self._refuse(http, refusal)
        except Exception:  # the boundary to HTTP: logged, and answered with 500
            logger.exception("the endpoint failed")
            fault = Refusal(500, "the endpoint failed; its log says why.", code="internal_error")
            await self._refuse(http, fault)

    async def _refuse(self, http: Http, refusal: Refusal) -> None:
        body = self._error(refusal)
        if http.has_begun:  # a stream that was kept waiting
            await http.go_on(b"event: error\ndata: " + body + b"\n\n", is_last=True)
        else:
            await http.answer(refusal.status, body, headers=refusal.headers)


class _Routes:
    def __init__(self, service: EndpointService) -> None:
        self._service = service

    async def ask(self, http: Http, dialect: Dialect) -> None:
        """Answer a call in the form that it came in."""
        entry = self._service.entry(http.key, client=http.client)
        try:
            await self._answer(http, dialect, entry)
        except Refusal as refusal:
            self._service.note_refused(entry, refusal)
            raise

    async def _answer(self, http: Http, dialect: Dialect, entry: Entry) -> None:
        service = self._service
        body, retry = await http.json()
        target = service.target(body, entry=entry, headers=http.headers)
        reads = target.template_reads
        request = dialect.read(body, agent=target.agent, retry=retry, template_reads=reads)
        with service.counted():
            async with http.while_connected():
                answer = target.session.ask(request, entry=target.entry)
                served = await (http.wait_for(answer) if request.is_streamed else answer)
            service.note(target, served)
            name, decode = target.name, target.decode
            if request.is_streamed:
                events = list(dialect.stream(served, request, model=name, decode=decode))
                target.session.deliver(served, record=target.entry.record)
                await http.stream(events)
            else:
                raw = dumped(dialect.write(served, request, model=name, decode=decode))
                target.session.deliver(served, record=target.entry.record)
                await http.answer(200, raw)

    async def models(self, http: Http) -> None:
        entry = self._service.entry(http.key, client=http.client)
        models = [
            {"id": name, "object": "model", "created": 0, "owned_by": "trinity"}
            for name in self._service.names(entry)
        ]
        await http.answer(200, dumped({"object": "list", "data": models}))

    async def health(self, http: Http) -> None:
        await http.answer(200, b"{}")

    async def load(self, http: Http) -> None:
        self._service.entry(http.key, client=http.client)
        await http.answer(200, dumped({"server_load": self._service.num_open}))

    async def unknown(self, http: Http) -> None:
        raise Refusal(
            404,
            f"there is no {http.path}; set the base URL of your client to one that ends in /v1, "
            f"as OPENAI_BASE_URL has it.",
            code="not_found",
        )


def _wrong_method(scope: Scope, method: str) -> Refusal:
    return Refusal(
        405,
        f"{scope['path']} takes {method}, not {scope['method']}.",
        code="method_not_allowed",
        headers={"allow": method},
    )
