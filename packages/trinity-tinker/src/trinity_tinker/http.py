"""Bodies of HTTP: read and unpacked within bounds, and answers in JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import zstandard
from starlette.responses import Response

from trinity_tinker.refusal import RequestError

if TYPE_CHECKING:
    from starlette.requests import Request as Http

__all__ = ["MAX_BODY_BYTES", "body_of", "json_object", "json_response", "parsed_object"]

MAX_BODY_BYTES = 256 * 2**20  # also of a body once it is unpacked


async def body_of(http: Http) -> bytes:
    """Return the body, unpacked.

    Raises:
        RequestError: 413, it is too long; 422, it cannot be unpacked.
    """
    parts, total = [], 0
    async for part in http.stream():
        parts.append(part)
        total += len(part)
        if total > MAX_BODY_BYTES:
            raise RequestError(413, f"the body has more than {MAX_BODY_BYTES} bytes.")
    raw = b"".join(parts)
    if http.headers.get("content-encoding", "") != "zstd":
        return raw
    try:
        unpacking = zstandard.ZstdDecompressor()
        with unpacking.stream_reader(raw, read_across_frames=True) as reader:
            unpacked = reader.read(MAX_BODY_BYTES + 1)
    except zstandard.ZstdError as error:
        raise RequestError(422, f"the body cannot be unpacked: {error}.") from error
    if len(unpacked) > MAX_BODY_BYTES:
        raise RequestError(413, f"the unpacked body has more than {MAX_BODY_BYTES} bytes.")
    return unpacked


async def json_object(http: Http) -> dict[str, Any]:
    """Return the body, an object of JSON (Any: of a client)."""
    return parsed_object(await body_of(http) or b"{}")


def parsed_object(raw: bytes) -> dict[str, Any]:
    """Return an object of JSON (Any: of a client).

    Raises:
        RequestError: 422, it is none.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RequestError(422, f"the body is no JSON: {error}.") from error
    if not isinstance(body, dict):
        raise RequestError(422, "the body is no object of JSON.")
    return body


def json_response(answer: Any, *, status: int = 200) -> Response:
    """Return an answer in JSON (Any: what json takes)."""
    return Response(json.dumps(answer), status_code=status, media_type="application/json")
