"""POST /v1/responses, its part without a state: items in, items out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.endpoint.chat_request import ChatRequest, read_chat
from trinity.endpoint.fields import boolean, items, mapping, text
from trinity.endpoint.messages import joined_text
from trinity.endpoint.refusal import bad_field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trinity.endpoint.call import Retry

Json = dict[str, Any]  # Any: what JSON holds

_STATE = ("previous_response_id", "conversation", "background", "prompt")
_SAME = ["model", "temperature", "top_p", "top_k", "parallel_tool_calls", "stream", "user"]
_SAME += ["metadata", "chat_template_kwargs", "stop", "seed", "return_token_ids"]


def read_response(
    body: Mapping[str, Any], *, agent: str, retry: Retry, template_reads: Callable[[str], bool]
) -> ChatRequest:
    """Return what the body asks for, by way of the chat that says the same.

    Raises:
        Refusal: a field cannot be honoured.
    """
    for name in _STATE:
        if body.get(name):
            raise bad_field(name, "is not supported: nothing is kept here; send the whole input.")
    if boolean(body, "store"):
        raise bad_field("store", "is true, but nothing is kept here; send false.")
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
    return ChatRequest(
        call=request.call,
        is_streamed=request.is_streamed,
        wants_token_ids=request.wants_token_ids,
        body=body,
    )


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
