"""Find which fields of the batch a function asks for by its parameter names."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any

from trinity.common.batch import ALIASES
from trinity.errors import unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["arguments_from", "by_any_name", "field_names", "with_whole"]

_WHOLE = "whole_"  # before the name of a field: that of the batch, not of the micro-batch


def field_names(function: object) -> list[str]:
    """Return the parameters of ``function.__call__`` that name fields.

    ``self``, ``logprob`` (which the trainer makes) and ``**kwargs`` are none.
    """
    return [p.name for p in _parameters(function) if _canonical(p.name) != "logprob"]


def arguments_from(function: object, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that ``function.__call__`` names, under the names it uses.

    A parameter with a default that is no field keeps its default.

    Args:
        function: a component whose parameters name fields, by our names or by verl's.
        fields: what there is, ``logprob`` among it (Any: tensors).

    Raises:
        ValueError: a parameter without a default is no field; the message lists what there is.
    """
    arguments = {}
    for parameter in _parameters(function):
        name = _canonical(parameter.name)
        if name in fields:
            arguments[parameter.name] = fields[name]
        elif parameter.default is inspect.Parameter.empty:
            raise ValueError(
                f"{type(function).__name__}.__call__ asks for {parameter.name!r}: "
                f"{unknown_name('field', parameter.name, fields)}"
            )
    return arguments


def with_whole(
    function: object, fields: Mapping[str, Any], whole: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of a micro-batch, and those of the whole batch that the function names.

    A parameter ``whole_NAME`` gets the field NAME of the whole batch: a loss of several parts needs
    it to count the rows and tokens of each (``normalizer`` "sum").

    Args:
        function: a component whose parameters name fields.
        fields: of the micro-batch (Any: tensors).
        whole: of the batch; what it lacks is left out.
    """
    wanted = {
        name: name.removeprefix(_WHOLE) for name in field_names(function) if name.startswith(_WHOLE)
    }
    return {**fields, **{name: whole[field] for name, field in wanted.items() if field in whole}}


def by_any_name(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method, which takes its fields by our names and by verl's alike.

    Args:
        method: a ``__call__`` whose parameters name fields (Any: tensors).
    """
    own = {_canonical(name): name for name in inspect.signature(method).parameters}
    names = frozenset(own.values())

    @wraps(method)
    def call(self: object, *args: Any, **given: Any) -> Any:
        if not names.issuperset(given):
            renamed = {n: v for n, v in given.items() if n not in names}
            given = {n: v for n, v in given.items() if n in names}
            for name, value in renamed.items():
                given.setdefault(own.get(_canonical(name), name), value)
        return method(self, *args, **given)

    return call


def _parameters(function: object) -> list[inspect.Parameter]:
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    bound = inspect.signature(function.__call__)  # type: ignore[operator]
    return [p for p in bound.parameters.values() if p.kind in by_name]


def _canonical(name: str) -> str:
    return ALIASES.get(name, name)
