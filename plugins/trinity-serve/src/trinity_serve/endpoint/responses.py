"""POST /v1/responses, its part without a state: items in, items out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trinity_serve.endpoint.chat import read_chat, tool_calls_of
from trinity_serve.endpoint.dialect import event
from trinity_serve.endpoint.fields import bad_field, boolean, items, mapping, text
from trinity_serve.endpoint.messages import joined_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trinity.common.models.recorded_calls import RecordedCall

    from trinity_serve.endpoint.chat import ChatCompletion, ChatRequest, Retry

Json = dict[str, Any]  # Any: what JSON holds

_STATE = ("previous_response_id", "conversation", "background", "prompt")
_SAME = ["model", "temperature", "top_p", "top_k", "parallel_tool_calls", "stream", "user"]
_SAME += ["metadata", "chat_template_kwargs", "stop", "seed", "return_token_ids"]
_SAME += ["presence_penalty", "frequency_penalty", "logit_bias"]

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


def read_response(
    body: Mapping[str, Any], *, agent: str, retry: Retry, template_reads: Callable[[str], bool]
) -> ChatRequest:
    """Return what the body asks for, by way of the chat that says the same.

    Raises:
        Refusal: a field cannot be honoured.
    """
    for name in _STATE:
        if body.get(name):
            raise bad_field(
                name, "is not supported: the endpoint is stateless; send the whole input."
            )
    if boolean(body, "store"):
        raise bad_field("store", "is true, but the endpoint is stateless; send false.")
    chat: Json = {name: body[name] for name in _SAME if name in body}
    chat["messages"] = _messages(body)
    chat["tools"] = [_tool(one, place=n) for n, one in enumerate(items(body, "tools"))]
    chat["tool_choice"] = _choice(body.get("tool_choice"))
    chat["max_tokens"] = body.get("max_output_tokens")
    chat["response_format"] = _format(body)
    effort = (mapping(body, "reasoning") or {}).get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    request = read_chat(chat, agent=agent, retry=retry, template_reads=template_reads)
    return replace(request, body=body)


def _messages(body: Mapping[str, Any]) -> list[Json]:
    given = body.get("input")
    messages: list[Json] = []
    instructions = text(body, "instructions")
    if instructions:
        messages.append({"role": "system", "content": instructions})
    if not given:
        raise bad_field("input", "is empty; send a text or a list of items.")
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    for place, item in enumerate(items(body, "input")):
        _add(messages, item, path=f"input[{place}]")
    return messages


def _add(messages: list[Json], item: Json, *, path: str) -> None:
    """Add an item; those of one reply become one message."""
    kind = item.get("type", "message")
    if kind == "message":
        content = joined_text(item.get("content"), path=f"{path}.content")
        if item.get("role") == "assistant":
            message = _open_reply(messages)
            message["content"] = content
        else:
            messages.append({"role": item.get("role"), "content": content})
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        calls = _open_reply(messages, has_more=True).setdefault("tool_calls", [])
        calls.append({"id": item.get("call_id"), "type": "function", "function": function})
    elif kind == "function_call_output":
        output = joined_text(item.get("output"), path=f"{path}.output")
        call_id = item.get("call_id")
        messages.append({"role": "tool", "tool_call_id": call_id, "content": output})
    elif kind == "reasoning":
        parts = item.get("content") or item.get("summary") or []
        said = [part.get("text", "") for part in parts if isinstance(part, dict)]
        messages.append(
            {"role": "assistant", "content": "", "reasoning_content": "\n".join(map(str, said))}
        )
    else:
        raise bad_field(f"{path}.type", f"is {kind!r:.60}, which this endpoint does not know.")


def _open_reply(messages: list[Json], *, has_more: bool = False) -> Json:
    """Return the message of the reply that an item is a part of."""
    last = messages[-1] if messages else {}
    is_begun = last.get("role") == "assistant" and (has_more or not last.get("content"))
    if not is_begun or (not has_more and last.get("tool_calls")):
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _tool(tool: Json, *, place: int) -> Json:
    kind = tool.get("type")
    if kind != "function":
        raise bad_field(
            f"tools[{place}].type", f"is {kind!r:.60}; this endpoint has no tools of its own."
        )
    function = {name: tool[name] for name in ("name", "description", "parameters") if name in tool}
    return {"type": "function", "function": function}


def _choice(given: Any) -> Any:  # Any: a client's
    if isinstance(given, dict) and given.get("type") == "function":
        return {"type": "function", "function": {"name": given.get("name")}}
    return given


def _format(body: Mapping[str, Any]) -> Json | None:
    given = mapping(mapping(body, "text") or {}, "format", path="text.format")
    if given is None or given.get("type") != "json_schema":
        return given
    return {"type": "json_schema", "json_schema": {"schema": given.get("schema")}}


def response_reply(
    served: ChatCompletion, request: ChatRequest, *, model: str, decode: Callable[[int], str]
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
        body["prompt_token_ids"] = served.replies[0].prompt_token_ids
    return body


def response_stream(
    served: ChatCompletion, request: ChatRequest, *, model: str, decode: Callable[[int], str]
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


def _items(reply: RecordedCall, *, name: str, is_cut: bool) -> list[Json]:
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


def _usage(served: ChatCompletion) -> Json:
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
