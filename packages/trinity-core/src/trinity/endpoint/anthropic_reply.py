"""What a call was answered with, in the shape of POST /v1/messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trinity.endpoint.dialect import event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trinity.common.models.said import Reply
    from trinity.endpoint.call import Served
    from trinity.endpoint.chat_request import ChatRequest

Json = dict[str, Any]  # Any: what JSON holds


def message_reply(
    served: Served,
    request: ChatRequest,
    *,
    model: str,
    decode: Callable[[int], str],
) -> Json:
    """Return the body."""
    [reply] = served.replies
    return {
        "id": f"msg_{served.run}-{served.number}".replace("/", "-"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": _blocks(reply),
        "stop_reason": _stop_reason(reply),
        "stop_sequence": reply.outcome.stop_reason,
        "usage": {
            "input_tokens": served.num_prompt_tokens,
            "output_tokens": served.num_sampled,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def message_stream(
    served: Served, request: ChatRequest, *, model: str, decode: Callable[[int], str]
) -> Iterator[bytes]:
    """Yield the events."""
    whole = message_reply(served, request, model=model, decode=decode)
    blocks, usage = whole["content"], whole["usage"]
    begun = {**whole, "content": [], "stop_reason": None, "stop_sequence": None}
    yield _event("message_start", message={**begun, "usage": {**usage, "output_tokens": 0}})
    for index, block in enumerate(blocks):
        empty, delta = _begun(block)
        yield _event("content_block_start", index=index, content_block=empty)
        yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    end = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
    yield _event("message_delta", delta=end, usage=usage)
    yield _event("message_stop")


def _event(kind: str, **body: Any) -> bytes:
    return event({"type": kind, **body}, name=kind)


def _blocks(reply: Reply) -> list[Json]:
    parsed = reply.parsed
    blocks: list[Json] = []
    if parsed.reasoning is not None:
        blocks.append({"type": "thinking", "thinking": parsed.reasoning, "signature": ""})
    if parsed.content or not parsed.tool_calls:
        blocks.append({"type": "text", "text": parsed.content})
    for call in parsed.tool_calls:
        blocks.append(
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        )
    return blocks


def _stop_reason(reply: Reply) -> str:
    if reply.parsed.tool_calls:
        return "tool_use"
    if reply.outcome.finish_reason == "length":
        return "max_tokens"
    return "stop_sequence" if reply.outcome.stop_reason else "end_turn"


def _begun(block: Json) -> tuple[Json, Json]:
    """Return the block as it begins, and what is added to it."""
    if block["type"] == "thinking":
        return {**block, "thinking": ""}, {"type": "thinking_delta", "thinking": block["thinking"]}
    if block["type"] == "text":
        return {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    said = json.dumps(block["input"], ensure_ascii=False)
    return {**block, "input": {}}, {"type": "input_json_delta", "partial_json": said}
