"""Who may ask a server of ours: by the token in the address, and by a name of this machine."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Guard", "host_of"]

HOSTS = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {  # Streamlit's own scripts are made while they run; nothing comes from elsewhere
    "content-security-policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        "worker-src 'self' blob:; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Answers those alone that know the token, and ask by a name of this machine.

    Requests and WebSockets alike. A page of another site cannot ask: it does not know the token,
    and its origin is refused.

    Args:
        app: behind it; its addresses begin with the token too.
        token: that is asked for.
    """

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, _with_headers(send))
        elif scope["type"] == "http":
            await refusal(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "not allowed"})

    def _refusal(self, scope: Scope) -> Response | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if host_of(headers.get(b"host", "")) not in HOSTS:
            return PlainTextResponse("ask by 127.0.0.1 or localhost", 421)
        origin = headers.get(b"origin", "")
        if origin and urlsplit(origin).netloc != headers[b"host"]:
            return PlainTextResponse("another site asks", 403)
        given = scope["path"].split("/")[1].encode("utf-8", "replace")
        if not hmac.compare_digest(given, self._token.encode()):
            return PlainTextResponse("open the address that was printed: it has a token", 403)
        return None


def host_of(header: str) -> str:
    """Return the name in a header ``host``, without the port.

    >>> host_of("127.0.0.1:8501"), host_of("[::1]"), host_of("evil.example:80")
    ('127.0.0.1', '[::1]', 'evil.example')
    """
    name, separator, port = header.rpartition(":")
    return name if separator and port.isdecimal() else header


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message["headers"] = [*message.get("headers", ()), *own]  # type: ignore[misc]
        await send(message)

    return send_with_headers  # type: ignore[return-value]
