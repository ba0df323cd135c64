"""Read one field of a body, or say in one sentence what is wrong with it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trinity.endpoint.refusal import bad_field

if TYPE_CHECKING:
    from collections.abc import Mapping

Body = dict[str, Any]  # Any: what a client sends


def number(
    body: Mapping[str, Any], name: str, *, low: float, high: float = math.inf, above: bool = False
) -> float | None:
    """Return a number; None: it is not given."""
    value = body.get(name)
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not (low <= value <= high) or (above and value == low):
        bound = "above" if above else "at least"
        top = "" if high == math.inf else f" and at most {high:g}"
        raise bad_field(name, f"is {_shown(value)}; give a number {bound} {low:g}{top}.")
    return float(value)


def whole(body: Mapping[str, Any], name: str, *, low: int, high: int | None = None) -> int | None:
    """Return a whole number; None: it is not given."""
    value = body.get(name)
    if value is None:
        return None
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < low or (high is not None and value > high):
        top = "" if high is None else f" and at most {high}"
        raise bad_field(name, f"is {_shown(value)}; give a whole number, at least {low}{top}.")
    return int(value)


def boolean(body: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """Return a truth value."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad_field(name, f"is {_shown(value)}; give true or false.")
    return value


def text(body: Mapping[str, Any], name: str, *, path: str = "") -> str | None:
    """Return a text; None: it is not given."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_field(path or name, f"is {_shown(value)}; give a text.")
    return value


def mapping(body: Mapping[str, Any], name: str, *, path: str = "") -> Body | None:
    """Return an object; None: it is not given."""
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise bad_field(path or name, f"is {_shown(value)}; give an object.")
    return value


def items(body: Mapping[str, Any], name: str, *, path: str = "") -> list[Body]:
    """Return a list of objects; empty: it is not given."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise bad_field(path or name, f"is {_shown(value)}; give a list of objects.")
    for place, item in enumerate(value):
        if not isinstance(item, dict):
            raise bad_field(f"{path or name}[{place}]", f"is {_shown(item)}; give an object.")
    return value


def known_word(value: Any, name: str, words: tuple[str, ...]) -> str:  # Any: a client's
    if value not in words:
        raise bad_field(name, f"is {_shown(value)}; give one of {', '.join(words)}.")
    return str(value)


def _shown(value: Any) -> str:  # Any: a client's
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
