"""Read the reply of somebody else's server up to a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.size_limits import MAX_REPLY
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["limit_awaited_reply", "limit_reply"]

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
