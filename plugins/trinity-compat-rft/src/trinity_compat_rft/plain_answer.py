"""The plain form of a mathematical answer, in which answers that are written alike are equal."""

from __future__ import annotations

import re

__all__ = ["strip_string"]

_UNITS = (
    "degrees?|mph|kmph|ft|feet|foot|inch(?:es)?|miles?|yards?|cm|mm|km|meters?|metres?|"
    "dollars?|cents?|hours?|minutes?|seconds?|days?|weeks?|years?|units?|square|cubic|percent|"
    "points?|liters?|litres?|kg|grams?|gm|lb|pounds?"
)
_CHANGES = (  # in this order: pattern, what stands for it
    (r"\n|\\!|\\?\$|\\?%|\\left(?![a-z])|\\right(?![a-z])|\\mathbf|\\mbox\{.*?\}", ""),
    (r"\.+$", ""),
    (r"\^(?:\{\\circ\}|\\circ)", ""),
    (r"\\begin\{array\}\{.*?\}", r"\\begin{pmatrix}"),
    (r"\\end\{array\}", r"\\end{pmatrix}"),
    (r"bmatrix", "pmatrix"),
    (r"\\[td]frac", r"\\frac"),
    (r"\\(ne|le|ge)q(?![a-z])", r"\\\1"),
    (r"\\([{}])", r"\1"),
    (r"\\text\{(.*?)\}", r"\1"),
    (rf"(?<=[\d\s}}])\s*\b(?:{_UNITS})\b", ""),
    (r"^\s*[a-zA-Z]\s*=\s*", ""),
    (r"(?<!\\)inf(?:inity|ty)?\b", r"\\infty"),
    (r"(\d)\.0+(?!\d)", r"\1"),
    (r"(^|[\s{])\.(?=\d)", r"\g<1>0."),
    (r"\s", ""),
    (r"\\sqrt(\w+)", r"\\sqrt{\1}"),
    (r"\\frac(\w)(\w)", r"\\frac{\1}{\2}"),
    (r"\\frac(\w)(?=\{)", r"\\frac{\1}"),
    (r"(\\frac\{[^{}]*\})(\w)", r"\1{\2}"),
    (r"^(-?\d+)/(-?\d+)$", r"\\frac{\1}{\2}"),
    (r"^\((.*)\)$|^\{(.*)\}$", r"\1\2"),
)
_COMPILED = tuple((re.compile(pattern), stands) for pattern, stands in _CHANGES)


def strip_string(input_str: str | None) -> str | None:
    r"""Return an answer without spaces, units and what only changes its looks.

    None: nothing is left. Numbers in words stay words.

    >>> strip_string("x = \\dfrac12 \\text{ cm}."), strip_string("\\left( 3, 4.00 \\right)")
    ('\\frac{1}{2}', '3,4')
    """
    if input_str is None:
        return None
    text = str(input_str).strip()
    for pattern, stands in _COMPILED:
        text = pattern.sub(stands, text)
    return text or None
