"""A chat's answer as the chunks of a stream: all at once, in the sequence that SDKs expect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.endpoint.chat_reply import chat_reply
from trinity.endpoint.dialect import event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trinity.endpoint.call import Served
    from trinity.endpoint.chat_request import ChatRequest


def chat_stream(
    served: Served, request: ChatRequest, *, model: str, decode: Callable[[int], str]
) -> Iterator[bytes]:
    """Yield the events: role, reasoning, content, calls, the end, usage, ``[DONE]``."""
    whole = chat_reply(served, request, model=model, decode=decode)
    usage, choices = whole.pop("usage"), whole.pop("choices")
    prompt_ids = whole.pop("prompt_token_ids", None)
    head = {**whole, "object": "chat.completion.chunk"}
    for choice in choices:
        for place, part in enumerate(_parts(choice)):
            further = {"prompt_token_ids": prompt_ids} if prompt_ids and not place else {}
            yield event({**head, "choices": [part], **further})
    if request.wants_usage:
        yield event({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _parts(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:  # Any: what JSON holds
    message, index = choice["message"], choice["index"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if "reasoning" in message:
        deltas.append({name: message[name] for name in ("reasoning_content", "reasoning")})
    if message["content"]:
        deltas.append({"content": message["content"]})
    deltas += [
        {"tool_calls": [{"index": place, **call}]}
        for place, call in enumerate(message.get("tool_calls", ()))
    ]
    for delta in deltas:
        yield {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}
    last = {name: choice[name] for name in choice if name != "message"}
    yield {**last, "delta": {}}
