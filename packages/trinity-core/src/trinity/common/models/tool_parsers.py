"""The named parsers of tool calls: each reads the notation that a family of models writes.

A reply that begins a call in the notation and does not end it, or whose call is none, is malformed:
all of it is content. Nothing is repaired. Where the model was told of no tools there are no calls.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from trinity.common.ports.reply import ParsedReply, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.models.chat_format import Message

__all__ = [
    "CallsParser",
    "HermesParser",
    "LlamaJsonParser",
    "MistralParser",
    "NotACallError",
    "QwenCoderParser",
    "json_values",
    "tool_call",
]


class NotACallError(ValueError):
    """What stands where a tool call should stand is none."""


class CallsParser(ABC):
    """What the parsers of tool calls share: a call is whole, or the reply is malformed."""

    @abstractmethod
    def read(self, text: str, *, tools: Sequence[Message]) -> tuple[str, list[ToolCall]] | None:
        """Return the content and the calls; None: no call is begun.

        Raises:
            NotACallError: one is begun that is none.
        """

    def parse(self, text: str, *, prompt: str, tools: Sequence[Message]) -> ParsedReply:
        """Return what the reply says."""
        if not tools:
            return ParsedReply(content=text)
        try:
            found = self.read(text, tools=tools)
        except (ValueError, RecursionError, MemoryError):  # of a text without bounds
            return ParsedReply(content=text, is_malformed=True)
        if found is None:
            return ParsedReply(content=text)
        content, calls = found
        return ParsedReply(content=content.strip(), tool_calls=tuple(calls))


class HermesParser(CallsParser):
    """Reads ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, one for each call."""

    def read(self, text: str, *, tools: Sequence[Message]) -> tuple[str, list[ToolCall]] | None:
        """Return the content and the calls; None: no call is begun."""
        content, bodies = blocks(text, begin="<tool_call>", end="</tool_call>")
        if not bodies:
            return None
        return content, [_json_call(body, arguments="arguments") for body in bodies]


class LlamaJsonParser(CallsParser):
    """Reads ``{"name": ..., "parameters": {...}}`` as the whole reply, several parted by ``;``."""

    def read(self, text: str, *, tools: Sequence[Message]) -> tuple[str, list[ToolCall]] | None:
        """Return no content and the calls; None: no call is begun."""
        body = text.strip()
        is_marked = body.startswith("<|python_tag|>")
        body = body.removeprefix("<|python_tag|>").strip()
        if not is_marked and not re.match(r'\{\s*"(type"\s*:\s*"function"\s*,\s*")?name"', body):
            return None
        values = json_values(body, between=";")
        return "", [tool_call(value, arguments=_of_llama(value)) for value in values]


class MistralParser(CallsParser):
    """Reads ``[TOOL_CALLS]`` and a list of calls, or a name and its arguments after each."""

    _mark = "[TOOL_CALLS]"

    def read(self, text: str, *, tools: Sequence[Message]) -> tuple[str, list[ToolCall]] | None:
        """Return the content and the calls; None: no call is begun."""
        content, *bodies = text.split(self._mark)
        if not bodies:
            return None
        if len(bodies) == 1 and bodies[0].strip().startswith("["):
            listed = _only(json_values(bodies[0].strip()))
            if not isinstance(listed, list) or not listed:
                raise NotACallError("no list of calls")
            return content, [tool_call(value, arguments="arguments") for value in listed]
        return content, [self._named(body) for body in bodies]

    def _named(self, body: str) -> ToolCall:
        head, brace, tail = body.partition("{")
        name = head.strip().removesuffix("[ARGS]").strip()
        arguments = _only(json_values(brace + tail.strip()))
        return tool_call({"name": name, "arguments": arguments}, arguments="arguments")


class QwenCoderParser(CallsParser):
    """Reads ``<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>``.

    A value becomes what the tool's schema says it is; where it cannot, it stays the text it is.
    """

    _function = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
    _parameter = re.compile(r"\s*<parameter=([^>\n]+)>(.*?)</parameter>\s*", re.DOTALL)

    def read(self, text: str, *, tools: Sequence[Message]) -> tuple[str, list[ToolCall]] | None:
        """Return the content and the calls; None: no call is begun."""
        content, bodies = blocks(text, begin="<tool_call>", end="</tool_call>")
        if not bodies:
            return None
        return content, [self._call(body, tools) for body in bodies]

    def _call(self, body: str, tools: Sequence[Message]) -> ToolCall:
        found = self._function.fullmatch(body)
        if found is None:
            raise NotACallError("no function")
        name, inner = found[1].strip(), found[2]
        types, arguments, place = _types(name, tools), dict[str, Any](), 0
        while inner[place:].strip():
            parameter = self._parameter.match(inner, place)
            if parameter is None:
                raise NotACallError("no parameter")
            key, value = parameter[1].strip(), parameter[2]
            value = value.removeprefix("\n").removesuffix("\n")
            arguments[key] = _typed(value, types.get(key))
            place = parameter.end()
        return tool_call({"name": name, "arguments": arguments}, arguments="arguments")


def blocks(text: str, *, begin: str, end: str) -> tuple[str, list[str]]:
    """Return the text without its blocks, and what each block holds.

    Raises:
        NotACallError: a block does not end, or ends that did not begin.
    """
    content, *parts = text.split(begin)
    if end in content:
        raise NotACallError(f"{end} without {begin}")
    bodies: list[str] = []
    for part in parts:
        body, found, after = part.partition(end)
        if not found or end in after:
            raise NotACallError(f"{begin} without {end}")
        bodies.append(body)
        content += after
    return content, bodies


def json_values(text: str, *, between: str = "") -> list[Any]:  # Any: JSON
    """Return the values that the text is, parted by ``between``.

    Raises:
        NotACallError: it is something else, holds a number that JSON has not, or half a character.
    """
    decoder = json.JSONDecoder(parse_constant=_refused)
    values, place = [], 0
    while True:
        value, place = decoder.raw_decode(text, place)
        values.append(value)
        rest = text[place:].lstrip()
        if not rest:
            break
        if not between or not rest.startswith(between):
            raise NotACallError("more than the value")
        text, place = rest.removeprefix(between).lstrip(), 0
    json.dumps(values, ensure_ascii=False).encode()
    return values


def tool_call(value: Any, *, arguments: str) -> ToolCall:  # Any: JSON
    """Return the call that an object with ``name`` and arguments is.

    Raises:
        NotACallError: it is none.
    """
    if not isinstance(value, dict) or not isinstance(value.get(arguments), dict):
        raise NotACallError("no object with arguments")
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        raise NotACallError("no name")
    return ToolCall(name=name, arguments=value[arguments])


def _json_call(text: str, *, arguments: str) -> ToolCall:
    return tool_call(_only(json_values(text.strip())), arguments=arguments)


def _only(values: list[Any]) -> Any:  # Any: JSON
    [value] = values
    return value


def _of_llama(value: Any) -> str:  # Any: JSON
    has_arguments = isinstance(value, dict) and "arguments" in value
    return "arguments" if has_arguments else "parameters"


def _refused(constant: str) -> Any:  # Any: of json's signature; it never returns
    raise NotACallError(f"JSON has no {constant}")


def _types(name: str, tools: Sequence[Message]) -> dict[str, Any]:  # Any: of a client's schema
    for tool in tools:
        function = tool.get("function", tool)
        if function.get("name") == name:
            properties = (function.get("parameters") or {}).get("properties") or {}
            return {key: (value or {}).get("type") for key, value in properties.items()}
    return {}


def _typed(value: str, kind: Any) -> Any:  # Any: what a schema says, and a value of it
    if kind in {None, "string"}:
        return value
    kinds = kind if isinstance(kind, list) else [kind]
    try:
        [parsed] = json_values(value.strip())
    except (ValueError, RecursionError):
        return value
    wanted = tuple(_PYTHON[one] for one in kinds if one in _PYTHON)
    is_number_of_bool = isinstance(parsed, bool) and "boolean" not in kinds
    return parsed if isinstance(parsed, wanted) and not is_number_of_bool else value


_PYTHON: Mapping[str, type | tuple[type, ...]] = {
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}
