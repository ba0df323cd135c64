"""The clients of one run: OpenAI's own, pointed at the run's endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.value_checks import MAX_REPLY
from trinity.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from openai import AsyncOpenAI, OpenAI

    from trinity.common.ports import Endpoint

__all__ = [
    "INSTALL",
    "api_async_client",
    "api_client",
    "async_client_of",
    "client_of",
    "limit_awaited_reply",
    "limit_reply",
]

INSTALL = "Install it: pip install 'trinity-core[api]'."
#: replies have them unless a call says false: published workflows read them without asking
_ALWAYS_ASKED = {"return_token_ids": "true", "logprobs": "true"}
_SWITCH = "explorer.rollout_model.enable_openai_api"


def client_of(endpoint: Endpoint) -> OpenAI:
    """Return OpenAI's client for an endpoint.

    Raises:
        ConfigError: the package is missing.
    """
    http = _openai().DefaultHttpxClient(verify=False, trust_env=False)  # loopback: no TLS, no proxy
    return api_client(**_settings(endpoint), http_client=http)


def async_client_of(endpoint: Endpoint) -> AsyncOpenAI:
    """Return OpenAI's client for those that await; see :func:`client_of`."""
    http = _openai().DefaultAsyncHttpxClient(verify=False, trust_env=False)
    return api_async_client(**_settings(endpoint), http_client=http)


def _settings(endpoint: Endpoint) -> dict[str, Any]:  # Any: each of its own type
    own = {"base_url": endpoint.base_url, "api_key": endpoint.key, "model": endpoint.model}
    return own | {"default_query": _ALWAYS_ASKED}


def api_client(base_url: str, *, api_key: str, model: str, **options: Any) -> OpenAI:
    """Return OpenAI's client for any API; its ``model_path`` is the model's name.

    A reply is read up to a limit (``limited_reply``).

    Raises:
        ConfigError: the package is missing.
    """
    if "http_client" not in options:
        hooks = {"response": [limit_reply]}
        options["http_client"] = _openai().DefaultHttpxClient(event_hooks=hooks)
    client: OpenAI = _openai().OpenAI(base_url=base_url, api_key=api_key, **options)
    client.model_path = model  # type: ignore[attr-defined]  # published
    return client


def api_async_client(base_url: str, *, api_key: str, model: str, **options: Any) -> AsyncOpenAI:
    """Return the client for those that await; see :func:`api_client`."""
    if "http_client" not in options:
        hooks = {"response": [limit_awaited_reply]}
        options["http_client"] = _openai().DefaultAsyncHttpxClient(event_hooks=hooks)
    client: AsyncOpenAI = _openai().AsyncOpenAI(base_url=base_url, api_key=api_key, **options)
    client.model_path = model  # type: ignore[attr-defined]
    return client


def _openai() -> Any:  # Any: the package
    try:
        import openai
    except ImportError as error:
        raise ConfigError(f"a client needs the package openai. {INSTALL}") from error
    return openai


_COMPRESSION = 64  # so many bytes may come of each that is compressed


def limit_reply(response: Any) -> None:  # Any: a response of the HTTP client that OpenAI's has
    """Let a reply end in an error where it is too long; an event hook of httpx."""
    is_compressed = response.headers.get("content-encoding", "identity") != "identity"
    limit = MAX_REPLY // _COMPRESSION if is_compressed else MAX_REPLY
    response.stream = _class_like(type(response.stream))(response.stream, limit)


async def limit_awaited_reply(response: Any) -> None:
    """Do the same for a client that awaits."""
    limit_reply(response)


class _Limited:
    """The bytes of a reply, up to a limit."""

    def __init__(self, stream: Any, limit: int) -> None:
        self._stream, self._left, self._limit = stream, limit, limit

    def __iter__(self) -> Iterator[bytes]:
        for part in self._stream:
            yield self._counted(part)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            yield self._counted(part)

    def _counted(self, part: bytes) -> bytes:
        self._left -= len(part)
        if self._left < 0:
            raise ModelError(
                f"the reply of the server has more than {self._limit:,} bytes; the rest was not "
                f"read. Ask it for fewer tokens, or correct the server."
            )
        return part

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _class_like(stream: type) -> type:
    """Return the class for a client, which asks whose base its streams have."""
    kinds = [c for c in stream.__mro__ if c.__name__ in {"SyncByteStream", "AsyncByteStream"}]
    return type("LimitedStream", (_Limited, *kinds), {})
