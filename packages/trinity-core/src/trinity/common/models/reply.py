"""From the text of a model's reply to a message: the parsers, by the notations that models write.

A reply that begins a call in a notation and does not end it, or whose call is none, is malformed:
all of it is content. Nothing is repaired. Where the model was told of no tools there are no calls.
"""

from __future__ import annotations

import ast
import json
import logging
import re
import warnings
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from trinity.common.ports.request import ParsedReply, ReplyParser, ToolCall, new_call_id
from trinity.extend import get_manager

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.models.chat_format import ChatFormat, Message
    from trinity.common.models.settings import ModelSettings

__all__ = [
    "CallsParser",
    "DeepseekR1Parser",
    "Glm45Parser",
    "HermesParser",
    "LlamaJsonParser",
    "MistralParser",
    "NotACallError",
    "ParsedReply",
    "PythonicParser",
    "Qwen3Parser",
    "QwenCoderParser",
    "ReplyParser",
    "ToolCall",
    "json_values",
    "new_call_id",
    "reply_parser",
    "tool_call",
]

logger = logging.getLogger(__name__)

#: what a chat template writes -> the parser of such calls; the first that is there
_CALLS = {
    "<function=": "qwen3_coder",
    "<arg_key>": "glm45",
    "<tool_call>": "hermes",
    "[TOOL_CALLS]": "mistral",
    "<|python_start|>": "pythonic",
    "<|python_tag|>": "llama3_json",
    '"parameters": ': "llama3_json",
}
_REASONING = {"</think>": "qwen3"}
_THINK, _THINK_END = "<think>", "</think>"


def reply_parser(chat_format: ChatFormat, settings: ModelSettings) -> ReplyParser:
    """Return what reads a model's replies.

    The parsers that the settings name; else what the tokenizer says of its replies
    (``response_template``); else those of the notation that the chat template writes; else nothing
    is read, and all is content.

    Raises:
        UnknownComponentError: no parser has the name.
    """
    return _chosen(chat_format, settings.tool_call_parser, settings.reasoning_parser)


@lru_cache(16)
def _chosen(chat_format: ChatFormat, calls: str | None, reasoning: str | None) -> ReplyParser:
    template = chat_format.template_text
    by_template = _InTurn(
        _reasoning_parser(chat_format, reasoning or _by_marks(_REASONING, template)),
        _made(calls or _by_marks(_CALLS, template)),
    )
    if calls is None and reasoning is None and has_response_template(chat_format):
        return _ByTokenizer(chat_format.tokenizer, otherwise=by_template)
    return by_template


def has_response_template(chat_format: ChatFormat) -> bool:
    """Return whether the tokenizer says how its replies are read."""
    return getattr(chat_format.tokenizer, "response_template", None) is not None


def _by_marks(table: dict[str, str], template: str) -> str | None:
    return next((name for mark, name in table.items() if mark in template), None)


def _reasoning_parser(chat_format: ChatFormat, name: str | None) -> ReplyParser | None:
    parser = _made(name)
    if parser is None or name != "deepseek_r1" or _THINK_END in chat_format.template_text:
        return parser
    if _THINK_END in chat_format.tokenizer.get_vocab():
        return parser
    logger.warning(
        "reasoning_parser: deepseek_r1 reads a reply as reasoning up to %s, and neither this "
        "model's chat template nor its vocabulary has that mark: a reply without it is content. "
        "Leave reasoning_parser out, or name the one that the model was trained with",
        _THINK_END,
    )
    return _WhereItEnds(parser)


class _WhereItEnds:
    """Reads reasoning only in a reply that ends it."""

    def __init__(self, parser: ReplyParser) -> None:
        self._parser = parser

    def parse(self, text: str, *, prompt: str, tools: Sequence[Message]) -> ParsedReply:
        if _THINK_END not in text:
            return ParsedReply(content=text)
        return self._parser.parse(text, prompt=prompt, tools=tools)


def _made(name: str | None) -> ReplyParser | None:
    return None if name is None else get_manager().load("reply_parser", name)()


class _InTurn:
    """Reads the reasoning first, and the calls in what it leaves."""

    def __init__(self, *parsers: ReplyParser | None) -> None:
        self._parsers = [parser for parser in parsers if parser is not None]

    def parse(self, text: str, *, prompt: str, tools: Sequence[Message]) -> ParsedReply:
        parsed = ParsedReply(content=text)
        for parser in self._parsers:
            found = parser.parse(parsed.content, prompt=prompt, tools=tools)
            if found.is_malformed:
                return ParsedReply(content=text, is_malformed=True)
            parsed = ParsedReply(
                content=found.content,
                reasoning=found.reasoning if parsed.reasoning is None else parsed.reasoning,
                tool_calls=(*parsed.tool_calls, *found.tool_calls),
            )
        return parsed


class _ByTokenizer:
    """Reads by the tokenizer's own ``response_template``; where there are no tools, otherwise."""

    def __init__(self, tokenizer: Any, *, otherwise: ReplyParser) -> None:  # Any: transformers'
        self._tokenizer = tokenizer
        self._otherwise = otherwise

    def parse(self, text: str, *, prompt: str, tools: Sequence[Message]) -> ParsedReply:
        if not tools:
            return self._otherwise.parse(text, prompt=prompt, tools=tools)
        try:
            given = [dict(tool) for tool in tools]
            return _of_message(self._tokenizer.parse_response(text, prefix=prompt, tools=given))
        except Exception:  # noqa: BLE001 -- whatever a template of others raises on a reply
            return ParsedReply(content=text, is_malformed=True)


def _of_message(message: dict[str, Any]) -> ParsedReply:  # Any: as the template made it
    reasoning = message.get("reasoning_content") or message.get("thinking")
    calls = [tool_call(call["function"]) for call in message.get("tool_calls") or ()]
    return ParsedReply(
        content=str(message.get("content") or "").strip(),
        reasoning=str(reasoning).strip() if reasoning else None,
        tool_calls=tuple(calls),
    )


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
        try:
            found = self.read(text, tools=tools) if tools else None
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
        values = [value for body in bodies for value in json_values(body.strip())]
        return content, [tool_call(value) for value in values]


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

    def read(self, text: str, *, tools: Sequence[Message]) -> tuple[str, list[ToolCall]] | None:
        """Return the content and the calls; None: no call is begun."""
        content, *bodies = text.split("[TOOL_CALLS]")
        if not bodies:
            return None
        if len(bodies) == 1 and bodies[0].strip().startswith("["):
            [listed] = json_values(bodies[0].strip())
            if not isinstance(listed, list) or not listed:
                raise NotACallError("no list of calls")
            return content, [tool_call(value) for value in listed]
        return content, [self._named(body) for body in bodies]

    def _named(self, body: str) -> ToolCall:
        head, brace, tail = body.partition("{")
        name = head.strip().removesuffix("[ARGS]").strip()
        [arguments] = json_values(brace + tail.strip())
        return tool_call({"name": name, "arguments": arguments})


class QwenCoderParser(CallsParser):
    """Reads ``<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>``.

    A value becomes what the tool's schema says it is; where it cannot, it stays the text it is.
    """

    _function = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
    _parameter = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)

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
        name, inner = found[1].strip(), found[2].strip()
        types, arguments, place = _types(name, tools), dict[str, Any](), 0
        while place < len(inner):
            parameter = self._parameter.match(inner, place)
            if parameter is None:
                raise NotACallError("no parameter")
            key = parameter[1].strip()
            arguments[key] = _typed(parameter[2], types.get(key, []))
            place = parameter.end()
        return tool_call({"name": name, "arguments": arguments})


class Glm45Parser(QwenCoderParser):
    """Reads ``<tool_call>NAME<arg_key>KEY</arg_key><arg_value>value</arg_value></tool_call>``.

    White space may part the marks. A value is read as in ``QwenCoderParser``; a text keeps its own.
    """

    _function = re.compile(r"\s*([^\s<{]+)\s*((?:<arg_key>.*)?)", re.DOTALL)
    _parameter = re.compile(
        r"<arg_key>([^<]+)</arg_key>\s*<arg_value>(.*?)</arg_value>\s*", re.DOTALL
    )


class PythonicParser(CallsParser):
    """Reads ``[name(key=value, ...), ...]`` as the whole reply; values are literals of Python."""

    _begin = re.compile(r"\[\s*[A-Za-z_][\w.]*\s*\(")

    def read(self, text: str, *, tools: Sequence[Message]) -> tuple[str, list[ToolCall]] | None:
        """Return no content and the calls; None: no call is begun."""
        body = text.strip()
        is_marked = body.startswith("<|python_start|>")
        body = body.removeprefix("<|python_start|>").removesuffix("<|python_end|>").strip()
        if not is_marked and not self._begin.match(body):
            return None
        with warnings.catch_warnings():  # a string of the model may hold an unknown escape
            warnings.simplefilter("ignore")
            try:
                tree = ast.parse(body, mode="eval").body
            except SyntaxError as error:
                raise NotACallError("no Python") from error
        if not isinstance(tree, ast.List) or not tree.elts:
            raise NotACallError("no list of calls")
        return "", [_python_call(element) for element in tree.elts]


def _python_call(node: ast.expr) -> ToolCall:
    if not isinstance(node, ast.Call) or node.args:
        raise NotACallError("no call with named arguments")
    arguments: dict[str, Any] = {}  # Any: literals
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise NotACallError("no named argument")
        arguments[keyword.arg] = _as_json(ast.literal_eval(keyword.value))
    return tool_call({"name": ast.unparse(node.func), "arguments": arguments})


def _as_json(value: Any) -> Any:  # Any: a literal, as JSON can hold it
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_as_json(one) for one in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(one) for key, one in value.items()}
    raise NotACallError("no value that JSON has")


class Qwen3Parser:
    """Reads reasoning that the prompt or the reply opens; without it a reply is content.

    Reasoning that does not end is all there is: such a reply was cut.
    """

    def parse(self, text: str, *, prompt: str, tools: Sequence[Message]) -> ParsedReply:
        """Return reasoning and content."""
        body = text.lstrip()
        if not prompt.rstrip().endswith(_THINK) and not body.startswith(_THINK):
            return ParsedReply(content=text)
        return _parted(body.removeprefix(_THINK))


class DeepseekR1Parser:
    """Reads every reply as reasoning up to its end, whoever opened it.

    Only where the prompt has closed the reasoning already, a reply is content.
    """

    def parse(self, text: str, *, prompt: str, tools: Sequence[Message]) -> ParsedReply:
        """Return reasoning and content."""
        if prompt.rstrip().endswith(_THINK_END):
            return ParsedReply(content=text)
        return _parted(text.lstrip().removeprefix(_THINK))


def _parted(text: str) -> ParsedReply:
    reasoning, _, content = text.partition(_THINK_END)
    return ParsedReply(content=content.strip(), reasoning=reasoning.strip() or None)


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


def tool_call(value: Any, *, arguments: str = "arguments") -> ToolCall:  # Any: JSON
    """Return the call that an object with ``name`` and, under that name, arguments is.

    Raises:
        NotACallError: it is none.
    """
    if not isinstance(value, dict) or not isinstance(value.get(arguments), dict):
        raise NotACallError("no object with arguments")
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        raise NotACallError("no name")
    return ToolCall(name=name, arguments=value[arguments])


def _of_llama(value: Any) -> str:  # Any: JSON
    has_arguments = isinstance(value, dict) and "arguments" in value
    return "arguments" if has_arguments else "parameters"


def _refused(constant: str) -> Any:  # Any: of json's signature; it never returns
    raise NotACallError(f"JSON has no {constant}")


def _types(name: str, tools: Sequence[Message]) -> dict[str, list[Any]]:  # Any: a client's schema
    for tool in tools:
        function = tool.get("function", tool)
        if function.get("name") == name:
            whole = function.get("parameters") or {}
            properties = whole.get("properties") or {}
            return {key: _kinds(schema, whole) for key, schema in properties.items()}
    return {}


def _kinds(schema: Any, whole: Any) -> list[Any]:  # Any: of a client
    """Return the types that a schema, a branch or a value of it allows; none: it may be anything.

    A ``$ref`` is followed in the ``whole``, once; what it does not find is an object or an array.
    """
    if not isinstance(schema, dict):
        return []
    if "$ref" in schema:
        found = whole
        for part in str(schema["$ref"]).removeprefix("#/").split("/"):
            found = found.get(part) if isinstance(found, dict) else None
        return _kinds(found, None) or ["object", "array"]
    values, types = _listed(schema.get("enum")), schema.get("type")
    kinds = [kind for value in values for kind in _PYTHON if isinstance(value, _PYTHON[kind])]
    kinds += _listed(types) or ([types] if types else [])
    branches = [one for key in ("anyOf", "oneOf", "allOf") for one in _listed(schema.get(key))]
    return kinds + [kind for one in branches for kind in _kinds(one, whole)]


def _listed(value: Any) -> list[Any]:  # Any: of a client
    return value if isinstance(value, list) else []


def _typed(value: str, kinds: list[Any]) -> Any:  # Any: what a schema says, and a value of it
    try:
        [parsed] = json_values(value.strip())
    except (ValueError, RecursionError):
        return value
    wanted = tuple(python for name, python in _PYTHON.items() if name in kinds)
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
