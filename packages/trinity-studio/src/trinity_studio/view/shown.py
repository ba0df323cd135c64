"""Text of others as text: nothing in it is markup, steers a terminal, or turns letters around."""

from __future__ import annotations

import math
import re

from markupsafe import Markup, escape

__all__ = ["MAX_SHOWN", "number", "plain", "shown"]

MAX_SHOWN = 20_000  # characters of one text
# What nobody sees and some act on: control characters, marks of direction, halves of pairs.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def shown(text: object, *, limit: int = MAX_SHOWN) -> Markup:
    """Return a text as HTML; what cannot be seen is spelled, what is too long is cut."""
    whole = str(text)
    cut = whole[:limit]
    parts, place = [], 0
    for found in _UNSEEN.finditer(cut):
        parts.append(escape(cut[place : found.start()]))
        parts.append(Markup('<span class="unseen">{}</span>').format(_spelled(found[0])))
        place = found.end()
    parts.append(escape(cut[place:]))
    if len(whole) > limit:
        left = Markup('<span class="note"> ... {} more characters</span>')
        parts.append(left.format(f"{len(whole) - limit:,}"))
    return Markup("").join(parts)


def plain(text: object, *, limit: int = 200) -> str:
    """Return a text for a chart, a file or an attribute, with what cannot be seen spelled."""
    return shown(text, limit=limit).striptags()


def number(value: object, *, digits: int = 4) -> str:
    """Return a number for people; a dash where there is none."""
    if value is None or isinstance(value, str):
        return value or "\u2013"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "\u2013" if math.isnan(value) else str(value)
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:.{digits}g}"


def _spelled(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
