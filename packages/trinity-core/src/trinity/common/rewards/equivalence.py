"""Whether two mathematical texts mean the same.

math-verify bounds its work by a signal, which only the main thread may use. Rewards run in other
threads, so the work is bounded otherwise: texts by their length, expressions by what evaluating
them can cost, and all of it by a number of calls, which is the same on every machine. What is too
costly is compared by its form alone.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["is_equivalent"]

MAX_CHARACTERS = 2000  # the answer stands at the end
MAX_NODES = 300
MAX_POWER = 1000  # the exponents of nested powers, multiplied
MAX_POWER_OF_SYMBOL = 32  # polynomials are expanded
MAX_FACTORIAL = 100
MAX_CALLS = 5_000_000  # of functions, in one comparison: about a second
UNBOUNDED = ("Integral", "Sum", "Product", "Limit", "Derivative")

_INTEGER = re.compile(r"\s*[+-]?\d{1,18}\s*", re.ASCII)  # compared without math-verify

_PLAIN = re.compile(r"[^$\\(\[{^*!]*")  # without any of these nothing is nested or evaluated
_LARGE_BINOMIAL = re.compile(r"(?s)(?=.*(?:binom|choose)).*\d{4}")  # one call that takes minutes

_MATHEMATICS = {"antlr4", "latex2sympy2_extended", "math_verify", "mpmath", "sympy"}

_lock = threading.Lock()  # sympy keeps global caches; python runs one thread at a time anyway


def is_equivalent(response: str, truth: str) -> bool:
    """Return whether the last mathematical expression of the response equals the truth.

    >>> is_equivalent("It is 1/2.", "0.5")
    True
    """
    if _INTEGER.fullmatch(response) and _INTEGER.fullmatch(truth):
        return int(response) == int(truth)

    response_end, truth_end = response[-MAX_CHARACTERS:], truth[-MAX_CHARACTERS:]
    is_plain = _PLAIN.fullmatch(response_end) and _PLAIN.fullmatch(truth_end)
    with _lock:
        try:
            with _bounded_calls(None if is_plain else MAX_CALLS):
                verdict = _verdict(response_end, truth_end)
        except _TooManyCallsError:
            verdict = None
    return response.strip() == truth.strip() != "" if verdict is None else verdict


@lru_cache(maxsize=4096)  # the answers of a group repeat each other
def _verdict(response: str, truth: str) -> bool | None:
    """Return whether they are equal; None: one of them holds no expression."""
    from math_verify import verify  # type: ignore[import-untyped]

    expected, answered = _expressions(truth), _expressions(response)
    if not expected or not answered:
        return None
    if not all(_is_cheap(value) for value in (*expected, *answered)):
        return any(value == other for value in expected for other in answered)
    return bool(verify(expected, answered, timeout_seconds=None))


class _TooManyCallsError(BaseException):
    """No Exception, as sympy would catch it."""


@contextmanager
def _bounded_calls(limit: int | None) -> Iterator[None]:
    """Raise in this thread once so many functions were called; not while a profiler runs."""
    if limit is None or sys.getprofile() is not None:
        yield
        return
    calls = 0

    def count(frame: FrameType, *_event: object) -> None:
        nonlocal calls
        calls += 1
        # A finalizer that happens to run here would swallow the error, which is raised but once.
        if calls > limit and frame.f_globals.get("__name__", "").partition(".")[0] in _MATHEMATICS:
            raise _TooManyCallsError

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


@lru_cache(maxsize=1024)  # a group shares its truth
def _expressions(text: str) -> list[Any]:  # Any: sympy has no types
    from math_verify import parse

    if _LARGE_BINOMIAL.match(text):
        return []
    log = logging.getLogger("math_verify")
    if log.level != logging.ERROR:  # it warns that it sets no signal; to set a level takes 2 ms
        log.setLevel(logging.ERROR)
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
