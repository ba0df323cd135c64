"""The routes, and what each does with a request that it cannot answer."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from starlette.routing import Mount, Route, Router

from trinity.endpoint.chat_reply import chat_reply
from trinity.endpoint.chat_request import read_chat
from trinity.endpoint.http import ClientGoneError, Http
from trinity.endpoint.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from trinity.endpoint.service import Service

__all__ = ["build_app"]

logger = logging.getLogger(__name__)

Answer = "Callable[[Http], Awaitable[None]]"


def build_app(service: Service) -> Router:
    """Return the application that a server runs."""
    routes = _Routes(service)
    open_to_runs = [
        Route("/v1/chat/completions", _Handler("POST", routes.chat_completions)),
        Route("/v1/models", _Handler("GET", routes.models)),
        Route("/load", _Handler("GET", routes.load)),
    ]
    return Router(
        [
            *open_to_runs,
            Mount("/r/{key}", routes=open_to_runs),
            Route("/health", _Handler("GET", routes.health)),
        ],
        redirect_slashes=False,
        default=_Handler("", routes.unknown),
    )


class _Handler:
    """Runs one route; whatever goes wrong is answered in OpenAI's shape."""

    def __init__(self, method: str, answer: Callable[[Http], Awaitable[None]]) -> None:
        self._method = method
        self._answer = answer

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
            await http.answer(refusal.status, refusal.body(), headers=refusal.headers)
        except Exception:
            logger.exception("the endpoint failed")
            if http.has_begun:
                raise
            fault = Refusal(500, "the endpoint failed; its log says why.", code="internal_error")
            await http.answer(fault.status, fault.body())


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def chat_completions(self, http: Http) -> None:
        entry = self._service.entry(http.key)
        body, retry = await http.json()
        target = self._service.target(body, entry=entry, headers=http.headers)
        request = read_chat(
            body, agent=target.agent, retry=retry, template_reads=target.template_reads
        )
        with self._service.counted():
            async with http.while_connected():
                served = await target.session.ask(request.call, entry=target.entry)
            answer = chat_reply(served, request, model=target.name, decode=target.decode)
            raw = _dumped(answer)
            target.session.deliver(served, record=target.entry.record)
            await http.answer(200, raw)

    async def models(self, http: Http) -> None:
        entry = self._service.entry(http.key)
        models = [
            {"id": name, "object": "model", "created": 0, "owned_by": "trinity"}
            for name in self._service.names(entry)
        ]
        await http.answer(200, _dumped({"object": "list", "data": models}))

    async def health(self, http: Http) -> None:
        await http.answer(200, b"{}")

    async def load(self, http: Http) -> None:
        self._service.entry(http.key)
        await http.answer(200, _dumped({"server_load": self._service.num_open}))

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


def _dumped(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
