"""The parser of tool calls that are written as calls of Python."""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING, Any

from trinity.common.models.tool_parsers import CallsParser, NotACallError, tool_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.models.chat_format import Message
    from trinity.common.ports.reply import ToolCall

__all__ = ["PythonicParser"]


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
        return "", [_call(element) for element in tree.elts]


def _call(node: ast.expr) -> ToolCall:
    if not isinstance(node, ast.Call) or node.args:
        raise NotACallError("no call with named arguments")
    arguments: dict[str, Any] = {}  # Any: literals
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise NotACallError("no named argument")
        arguments[keyword.arg] = _json(ast.literal_eval(keyword.value))
    return tool_call(
        {"name": ast.unparse(node.func), "arguments": arguments}, arguments="arguments"
    )


def _json(value: Any) -> Any:  # Any: a literal, as JSON can hold it
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_json(one) for one in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _json(one) for key, one in value.items()}
    raise NotACallError("no value that JSON has")
