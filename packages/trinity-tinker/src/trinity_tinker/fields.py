"""Fields of a JSON body: each is known by name and has its type, or the request is refused."""

from __future__ import annotations

import json
from typing import Any

from trinity_tinker.refusal import Refused

__all__ = ["number", "parsed", "whole"]


def parsed(raw: bytes, **known: Any) -> dict[str, Any]:
    """Return an object of JSON, with defaults for what it lacks (Any: values of JSON).

    Args:
        raw: the text.
        known: the default of each field; a type where the field has none and must be there.

    Raises:
        Refused: it is no object, lacks a field, or has one that is not known.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is no JSON: {error}.") from error
    if not isinstance(body, dict):
        raise Refused(f"the body is a {type(body).__name__}; send an object.")
    unknown = sorted(set(body) - set(known) - {"type"})
    if unknown:
        raise Refused(f"the field {unknown[0]!r} is not known here.")
    for name, default in known.items():
        if isinstance(default, type):
            if not isinstance(body.get(name), default):
                raise Refused(f"the field {name!r} is {body.get(name)!r}, not {default.__name__}.")
        elif body.get(name) is None:
            body[name] = default
    return body


def whole(body: dict[str, Any], name: str, *, least: int, most: int = 2**31 - 1) -> int:
    """Return a whole number of a body.

    Raises:
        Refused: it is none, smaller than the least or larger than the most.
    """
    value = body[name]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Refused(f"{name} is {value!r}; it is a whole number from {least} to {most}.")
    return value


def number(body: dict[str, Any], name: str, *, least: float) -> float:
    """Return a number of a body that is at least so large.

    Raises:
        Refused: it is none, or smaller.
    """
    value = body[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not value >= least or value == float("inf"):
        raise Refused(f"{name} is {value!r}; it is a number of at least {least:g}.")
    return float(value)
