"""Text of others as text: nothing in it is markup, steers a terminal, or turns letters around."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape
from trinity.runtime.record.restart import is_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["MAX_SHOWN", "Masker", "number", "shown"]

MAX_SHOWN = 20_000  # characters of one text
_MIN_SECRET = 6  # shorter values would hide words
_HIDDEN = "****"
_IN_ADDRESS = re.compile(r"(://)[^/\s]+(@)")  # a name, a password, a token
_IN_QUERY = re.compile(
    r"([?&](?:[^=&?\s]*[_-]|ssl)?(?:passw[^=&?\s]*|secret|token|api[_-]?key)=)[^&\s\"'<>]+",
    re.IGNORECASE,
)
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


class Masker:
    """Hides what is a secret of a configuration, wherever it stands.

    Args:
        values: of the configuration by path.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:  # Any: yaml
        found = {text for path, value in values.items() for text in _secrets(path, value)}
        kept = sorted((text for text in found if len(text) >= _MIN_SECRET), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, kept))) if kept else None

    def text(self, text: str) -> str:
        """Return a text without the secrets that are known, and without those of addresses."""
        if self._pattern is not None:
            text = self._pattern.sub(_HIDDEN, text)
        text = _IN_ADDRESS.sub(rf"\1{_HIDDEN}\2", text)
        return _IN_QUERY.sub(rf"\1{_HIDDEN}", text)

    def setting(self, path: str, value: object) -> str:
        """Return the value of a setting for people."""
        if value in (None, "", [], {}) or isinstance(value, bool):
            return str(value)
        return _HIDDEN if is_secret(path, value) else self.text(str(value))


def _secrets(path: str, value: Any) -> Iterable[str]:  # Any: yaml
    """Give the texts of a value that may be secrets."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _secrets(f"{path}.{name}", part)
    elif isinstance(value, list):
        for part in value:
            yield from _secrets(path, part)
    elif value is not None and not isinstance(value, bool) and is_secret(path):
        yield str(value)


def _spelled(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
