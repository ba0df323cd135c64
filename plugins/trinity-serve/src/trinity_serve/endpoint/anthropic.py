"""POST /v1/messages: Anthropic's form, its part of texts and tools."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trinity_serve.endpoint.chat import read_chat
from trinity_serve.endpoint.dialect import event
from trinity_serve.endpoint.fields import bad_field, items, known_word, mapping
from trinity_serve.endpoint.messages import joined_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trinity.common.models.recorded_calls import RecordedCall

    from trinity_serve.endpoint.chat import ChatCompletion, ChatRequest, Retry
    from trinity_serve.endpoint.fields import Refusal

Json = dict[str, Any]  # Any: what JSON holds

_SAME = ["model", "max_tokens", "temperature", "top_p", "top_k", "stream", "metadata"]
_SAME += ["chat_template_kwargs"]
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_KINDS = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}


def read_message(
    body: Mapping[str, Any], *, agent: str, retry: Retry, template_reads: Callable[[str], bool]
) -> ChatRequest:
    """Return what the body asks for, by way of the chat that says the same.

    Raises:
        Refusal: a field cannot be honoured.
    """
    chat: Json = {name: body[name] for name in _SAME if body.get(name) is not None}
    if "max_tokens" not in chat:
        raise bad_field("max_tokens", "is missing; give the most tokens of the reply.")
    system = joined_text(body.get("system"), path="system")
    chat["messages"] = [{"role": "system", "content": system}] if system else []
    for place, message in enumerate(items(body, "messages")):
        chat["messages"] += _messages(message, path=f"messages[{place}]")
    chat["tools"] = [_tool(one, place=n) for n, one in enumerate(items(body, "tools"))]
    choice = mapping(body, "tool_choice") or {}
    chat["tool_choice"] = _choice(choice)
    chat["parallel_tool_calls"] = not choice.get("disable_parallel_tool_use")
    chat["stop"] = body.get("stop_sequences")
    request = read_chat(chat, agent=agent, retry=retry, template_reads=template_reads)
    return replace(request, body=body)


def anthropic_error(refusal: Refusal) -> bytes:
    """Return a refusal in Anthropic's shape."""
    kind = "api_error" if refusal.status >= 500 else _KINDS.get(refusal.status, refusal.kind)
    error = {"type": kind, "message": str(refusal)}
    return json.dumps({"type": "error", "error": error}).encode()


def _messages(message: Json, *, path: str) -> list[Json]:
    """Return the messages that one is: results of tools are messages of their own."""
    role = known_word(message.get("role"), f"{path}.role", ("user", "assistant"))
    content = message.get("content")
    if not isinstance(content, list):
        return [{"role": role, "content": content}]
    made: list[Json] = []
    texts: list[str] = []
    reply: Json = {}
    for place, block in enumerate(content):
        where = f"{path}.content[{place}]"
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use":
            reply.setdefault("tool_calls", []).append(_call(block))
        elif kind == "tool_result":
            said = joined_text(block.get("content"), path=f"{where}.content")
            call_id = block.get("tool_use_id")
            made.append({"role": "tool", "tool_call_id": call_id, "content": said})
        elif kind == "thinking":
            reply["reasoning_content"] = block.get("thinking")
        elif kind != "redacted_thinking":
            texts.append(joined_text([block], path=where))
    if role == "assistant" or texts:
        made.append({"role": role, "content": "\n".join(texts), **reply})
    return made


def _call(block: Json) -> Json:
    function = {"name": block.get("name"), "arguments": block.get("input")}
    return {"id": block.get("id"), "type": "function", "function": function}


def _tool(tool: Json, *, place: int) -> Json:
    if tool.get("type", "custom") != "custom":
        raise bad_field(f"tools[{place}].type", "is a tool of the server; this one has none.")
    function: Json = {name: tool[name] for name in ("name", "description") if name in tool}
    function["parameters"] = tool.get("input_schema") or {"type": "object"}
    return {"type": "function", "function": function}


def _choice(choice: Json) -> Any:  # Any: as chat completions take it
    if not choice:
        return None
    if choice.get("type") == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return _CHOICES[known_word(choice.get("type"), "tool_choice.type", tuple(_CHOICES))]


def message_reply(
    served: ChatCompletion,
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
    served: ChatCompletion, request: ChatRequest, *, model: str, decode: Callable[[int], str]
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


def _blocks(reply: RecordedCall) -> list[Json]:
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


def _stop_reason(reply: RecordedCall) -> str:
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
