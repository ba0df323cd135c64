"""Work out the expressions of a game's grammar, none of which is run as code.

textworld hands whatever a grammar writes between braces to ``eval``. Here that symbol is replaced:
what the published grammars write is understood, and nothing else.

    {r}   {o.name}   {r.name or r.id}   {o.indefinite + ' ' + o.name}
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from trinity.errors import BadTaskError, PluginError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["check_texts", "install", "value_of"]

ATTRIBUTES = frozenset(
    {"id", "type", "name", "noun", "adj", "desc", "definite", "indefinite", "room_type"}
)  # of a thing in a game; texts, all of them
MAX_CHARACTERS = 200
_OTHER = "this textworld reads grammars in another way, so no game can be checked for code."
_HOSTILE = '{"intro": [{"rhs": "{().__class__}"}]}'


def install(textgen: Any) -> None:  # Any: attributes of the module are set
    """Let this process of textworld work out expressions by ``value_of``, never by ``eval``.

    Raises:
        PluginError: this textworld works otherwise, so that nothing could be promised.
    """
    if not hasattr(textgen, "EvalSymbol"):
        raise PluginError(_OTHER)
    if hasattr(textgen.EvalSymbol, "is_checked"):
        return

    class CheckedSymbol(textgen.EvalSymbol):  # type: ignore[misc] # Any
        """An expression, refused where it is read."""

        is_checked = True

        def __init__(self, expression: str, context: Mapping[str, Any] | None = None) -> None:
            super().__init__(expression, context or {})
            _parsed(expression)

        def derive(self, context: Mapping[str, Any] | None = None) -> list[Any]:
            things = (context or self.context)["variables"]
            return [textgen.TerminalSymbol(value_of(self.expression, things))]

    textgen.EvalSymbol = CheckedSymbol
    try:
        textgen.ContextSensitiveGrammar.parse(_HOSTILE)
    except BadTaskError:
        return
    raise PluginError(_OTHER)


def check_texts(textgen: Any, texts: Iterable[str]) -> None:
    """Refuse templates that hold an expression which is none of the published kind.

    Raises:
        BadTaskError: one does.
    """
    for text in texts:
        _check_text(textgen, text)


@lru_cache(maxsize=1024)  # a game has about 30, and most games the same
def _check_text(textgen: Any, text: str) -> None:
    textgen._parse_and_convert(text, rule_name="symbols")


def value_of(expression: str, things: Mapping[str, Any]) -> Any:  # a text, or a thing
    """Return what an expression says of the things that its names stand for.

    Raises:
        BadTaskError: it is none of the published kind.

    >>> value_of("'a ' + 'mug'", {})
    'a mug'
    """
    return _value(_parsed(expression), things)


@lru_cache(maxsize=1024)  # a grammar has about 30, and most games the same
def _parsed(expression: str) -> ast.expr:
    if len(expression) <= MAX_CHARACTERS:
        try:
            tree = ast.parse(expression.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            tree = None
        if tree is not None and _is_known(tree):
            return tree
    shown = expression if len(expression) <= MAX_CHARACTERS else f"{expression[:80]}..."
    raise BadTaskError(
        f"its grammar holds an expression that no published game has: {{{shown}}}. Allowed are a "
        f"thing ({{r}}), what it is called ({{r.name}}), quoted texts, + and or. It was not run; "
        f"take games from where you trust, or make them anew."
    )


def _is_known(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and _is_known(node.left) and _is_known(node.right)
    if isinstance(node, ast.BoolOp):
        return isinstance(node.op, ast.Or) and all(map(_is_known, node.values))
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.attr in ATTRIBUTES
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_text or isinstance(node, ast.Name)


def _value(node: ast.expr, things: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.BinOp):
        return _value(node.left, things) + _value(node.right, things)
    if isinstance(node, ast.BoolOp):
        values = [_value(part, things) for part in node.values]
        return next(filter(None, values), values[-1])
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, things), node.attr)
    if isinstance(node, ast.Name):
        return things[node.id]
    return node.value if isinstance(node, ast.Constant) else None
