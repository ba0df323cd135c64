"""What is told, as HTML: keys and paths break at their joints where a line is too narrow."""

from __future__ import annotations

import re
from html import escape

__all__ = ["told_html", "with_joints"]

_LONG = 20  # characters of a word that may have to be broken
_STEP = '<span style="display: inline-block">{}</span>'
_TOLD = (
    '<div role="alert" style="padding: 1rem; border-radius: 0.5rem; overflow-wrap: anywhere; '
    "background: rgba(255, 43, 43, 0.09); "
    'color: color-mix(in srgb, #bd1f2d 80%, currentColor)">{}</div>'
)


def told_html(label: str, key: str, line: str) -> str:
    """Return what is wrong with a key, in a red box as wide as its row."""
    name = f'<code style="font-size: 0.8em">{with_joints(key)}</code>'
    said = f"<strong>{escape(label)}</strong> ({name}): "
    return _TOLD.format(said + with_joints(line))


def with_joints(text: str) -> str:
    r"""Return a text as HTML; a long word breaks after dots and slashes, and else after ``_``.

    >>> with_joints("no folder '/a/<b>'")
    "no folder '/a/&lt;b&gt;'"
    >>> with_joints("section.a_long_name_of_a_key").count("<span")
    2
    >>> _broken("c_d").endswith(">c_<wbr>d</span>")
    True
    """
    return "".join(
        _broken(word) if len(word) >= _LONG else escape(word, quote=False)
        for word in re.split(r"(\s+)", text)
    )


def _broken(word: str) -> str:
    steps = re.split(r"(?<=\w/)(?=[^/])|(?<=\.)(?=[^\W\d])", word)
    return "".join(
        _STEP.format(re.sub(r"([_-])(?=.)", r"\1<wbr>", escape(step, quote=False)))
        for step in steps
    )
