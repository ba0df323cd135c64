"""Whether two mathematical texts mean the same.

math-verify bounds its work by a signal, which only the main thread may use. Rewards run in other
threads, so the work is bounded beforehand: texts by their length, expressions by what evaluating
them can cost. What is too costly is compared by its form alone.
"""

from __future__ import annotations

import logging
import re
import threading
from functools import lru_cache
from typing import Any

__all__ = ["is_equivalent"]

MAX_CHARACTERS = 2000  # the answer stands at the end
MAX_NODES = 300
MAX_POWER = 1000  # the exponents of nested powers, multiplied
MAX_POWER_OF_SYMBOL = 32  # polynomials are expanded
MAX_FACTORIAL = 100
UNBOUNDED = ("Integral", "Sum", "Product", "Limit", "Derivative")

_INTEGER = re.compile(r"\s*[+-]?\d{1,18}\s*", re.ASCII)  # compared without math-verify

_lock = threading.Lock()  # sympy keeps global caches; python runs one thread at a time anyway


def is_equivalent(response: str, truth: str) -> bool:
    """Return whether the last mathematical expression of the response equals the truth.

    >>> is_equivalent("It is 1/2.", "0.5")
    True
    """
    if _INTEGER.fullmatch(response) and _INTEGER.fullmatch(truth):
        return int(response) == int(truth)

    from math_verify import verify  # type: ignore[import-untyped]

    with _lock:
        expected = _expressions(truth[-MAX_CHARACTERS:])
        answered = _expressions(response[-MAX_CHARACTERS:])
        if not expected or not answered:
            return response.strip() == truth.strip() != ""
        if not all(_is_cheap(value) for value in (*expected, *answered)):
            return any(value == other for value in expected for other in answered)
        return bool(verify(expected, answered, timeout_seconds=None))


@lru_cache(maxsize=1024)  # a group shares its truth
def _expressions(text: str) -> list[Any]:  # Any: sympy has no types
    from math_verify import parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it sets no signal
    found: list[Any] = parse(text, parsing_timeout=None)
    return found


def _is_cheap(value: Any) -> bool:
    """Return whether evaluating, expanding and comparing the expression is bounded."""
    if isinstance(value, str):
        return True
    waiting, num_nodes = [(value, 1.0)], 0
    while waiting:
        node, power = waiting.pop()
        num_nodes += 1
        power *= _exponent(node)
        if num_nodes > MAX_NODES or power > _power_limit(node) or not _is_bounded(node):
            return False
        waiting.extend((child, power) for child in getattr(node, "args", ()))
    return True


def _exponent(node: Any) -> float:
    if not getattr(node, "is_Pow", False):
        return 1.0
    exponent = node.exp
    if exponent.is_Number and exponent.is_finite:
        return max(1.0, abs(float(exponent)))
    if exponent.is_Atom:  # a symbol or a constant such as pi
        return 1.0
    return float("inf") if exponent.is_number and exponent.has(type(node)) else 2.0


def _power_limit(node: Any) -> float:
    return MAX_POWER_OF_SYMBOL if getattr(node, "free_symbols", None) else MAX_POWER


def _is_bounded(node: Any) -> bool:
    name = type(node).__name__
    if name in UNBOUNDED:
        return False
    if "actorial" in name or name == "binomial":
        return all(arg.is_Number and abs(arg) <= MAX_FACTORIAL for arg in node.args)
    return True
