"""Find which fields of the batch a function asks for by its parameter names."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from trinity.common.batch import ALIASES
from trinity.errors import unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["arguments_from", "field_names"]


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


def _parameters(function: object) -> list[inspect.Parameter]:
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    bound = inspect.signature(function.__call__)  # type: ignore[operator]
    return [p for p in bound.parameters.values() if p.kind in by_name]


def _canonical(name: str) -> str:
    return ALIASES.get(name, name)
