"""What a call was answered with, in the shape of POST /v1/responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.endpoint.chat_reply import tool_calls_of
from trinity.endpoint.dialect import event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trinity.common.models.said import Reply
    from trinity.endpoint.call import Served
    from trinity.endpoint.chat_request import ChatRequest

Json = dict[str, Any]  # Any: what JSON holds

_ECHOED: Json = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
}


def response_reply(
    served: Served, request: ChatRequest, *, model: str, decode: Callable[[int], str]
) -> Json:
    """Return the body."""
    [reply] = served.replies
    is_cut = reply.outcome.finish_reason == "length"
    name = f"{served.run}-{served.number}".replace("/", "-")
    body: Json = {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": served.created,
        "status": "incomplete" if is_cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "model": model,
        "output": _items(reply, name=name, is_cut=is_cut),
        "usage": _usage(served),
    }
    for field, default in _ECHOED.items():
        given = request.body.get(field)
        body[field] = default if given is None else given
    if request.wants_token_ids:
        body["token_ids"] = list(reply.completion.token_ids)
        body["prompt_token_ids"] = served.prompt_token_ids
    return body


def response_stream(
    served: Served, request: ChatRequest, *, model: str, decode: Callable[[int], str]
) -> Iterator[bytes]:
    """Yield the events, each with its number."""
    whole = response_reply(served, request, model=model, decode=decode)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
        *(one for place, item in enumerate(whole["output"]) for one in _of_item(item, place)),
        (f"response.{whole['status']}", {"response": whole}),
    ]
    for number, (kind, body) in enumerate(events):
        yield event({"type": kind, "sequence_number": number, **body}, name=kind)


def _items(reply: Reply, *, name: str, is_cut: bool) -> list[Json]:
    parsed = reply.parsed
    found: list[Json] = []
    status = "incomplete" if is_cut else "completed"
    if parsed.reasoning is not None:
        thought = {"type": "reasoning_text", "text": parsed.reasoning}
        found.append({"type": "reasoning", "id": f"rs_{name}", "summary": [], "content": [thought]})
    if parsed.content or not parsed.tool_calls:
        part = {"type": "output_text", "text": parsed.content, "annotations": [], "logprobs": []}
        found.append(
            {
                "type": "message",
                "id": f"msg_{name}",
                "role": "assistant",
                "status": status,
                "content": [part],
            }
        )
    for call in tool_calls_of(reply):
        found.append(
            {
                "type": "function_call",
                "id": f"fc_{call['id']}",
                "call_id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
                "status": status,
            }
        )
    return found


def _usage(served: Served) -> Json:
    num_prompt, num_sampled = served.num_prompt_tokens, served.num_sampled
    return {
        "input_tokens": num_prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": num_sampled,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": num_prompt + num_sampled,
    }


def _of_item(item: Json, place: int) -> Iterator[tuple[str, Json]]:
    at = {"output_index": place}
    here = {**at, "item_id": item["id"]}
    begun = {**item, "status": "in_progress"} if "status" in item else dict(item)
    if item["type"] == "message":
        begun["content"] = []
    elif item["type"] == "function_call":
        begun["arguments"] = ""
    yield "response.output_item.added", {**at, "item": begun}
    if item["type"] == "message":
        part = {**here, "content_index": 0}
        said = item["content"][0]
        yield "response.content_part.added", {**part, "part": {**said, "text": ""}}
        text = {**part, "logprobs": []}
        yield "response.output_text.delta", {**text, "delta": said["text"]}
        yield "response.output_text.done", {**text, "text": said["text"]}
        yield "response.content_part.done", {**part, "part": said}
    elif item["type"] == "function_call":
        yield "response.function_call_arguments.delta", {**here, "delta": item["arguments"]}
        done = {**here, "arguments": item["arguments"], "name": item["name"]}
        yield "response.function_call_arguments.done", done
    yield "response.output_item.done", {**at, "item": item}
