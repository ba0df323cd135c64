"""Texts without secrets: of all that leaves a process.

One of less than eight characters is hidden as a setting and not looked for in other texts, where it
would hide words. ``secret_names.py`` says which values are secrets. Metrics are none.

    configuration, environment --remember--> this process and its workers --masked--> every line
"""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from trinity.common.secret_names import IN_ADDRESS, MASK, OPTION, is_secret, named_by_option

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import TextIO

__all__ = [
    "MASKED",
    "MaskedStream",
    "Masker",
    "known_secrets",
    "masked",
    "masked_setting",
    "masked_values",
    "num_pending",
    "remember",
]

MIN_LENGTH = 8
_SHORT = 3  # letters at the end of a line that may well be no beginning of a secret
_SCHEME = re.compile(r"(bearer|basic|token)\s+", re.IGNORECASE)
_KEY = re.compile(  # as vendors write theirs: known wherever it stands
    r"(?<![\w-])(?:sk-|hf_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza)(?=[\w-]*\d)[\w-]{16,}"
)
MASKED = re.compile(r"^\*{4}$|://\S*\*{4}|(?<![\w-])--?[a-z][\w.-]*[=\s]\*{4}", re.IGNORECASE)
_LINE_END = r"(?:\s*\n\s*)?"


class Masker:
    """Hides secrets wherever they stand.

    Args:
        secrets: that are known.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        ways = sorted({way for one in secrets for way in _ways(one)}, key=len, reverse=True)
        self._ways = ways
        self._pattern = re.compile("|".join(map(_bounded, ways))) if ways else None

    def known(self, text: str) -> str:
        """Return a text without the secrets that are known, also over the ends of lines."""
        if self._pattern is None:
            return text
        text = self._pattern.sub(MASK, text)
        lines = text.split("\n")
        if len(lines) > 1 and self._pattern.search("".join(map(str.strip, lines))):
            broken = "|".join(_LINE_END.join(map(re.escape, way)) for way in self._ways)
            text = re.sub(broken, MASK, text)
        return text

    def text(self, text: str) -> str:
        """Return a text without known secrets, those of addresses and options, and keys."""
        text = _KEY.sub(MASK, self.known(text))
        text = IN_ADDRESS.sub(_hidden, text) if "://" in text else text
        return OPTION.sub(_hidden_option, text) if "-" in text else text

    def num_pending(self, text: str) -> int:
        """Return how many letters at the end of a text are the beginning of a known secret."""
        last = text.rstrip("\n")
        ends = len(text) - len(last)
        longest = 0
        for way in self._ways:
            tail = last[-len(way) + 1 :]
            start = tail.find(way[0])
            while start >= 0 and not way.startswith(tail[start:]):
                start = tail.find(way[0], start + 1)
            longest = max(longest, len(tail) - start if start >= 0 else 0)
        if longest <= (_SHORT if ends else 0):
            return 0
        cut = len(last) - longest
        whole = self._pattern.finditer(last) if self._pattern else ()
        around = (one.start() for one in whole if one.start() < cut < one.end())
        return len(text) - next(around, cut)  # a secret that ends as another begins waits whole

    def values(self, value: Any) -> Any:
        """Return the same value with known secrets masked in its texts (Any: json)."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.known(value)
        if isinstance(value, dict):
            return {self.values(name): self.values(part) for name, part in value.items()}
        if type(value) in (list, tuple):
            return type(value)(map(self.values, value))
        return value

    def setting(self, path: str, value: Any, *, declared: Collection[str] = ()) -> Any:
        """Return a value of a configuration as it may be shown (Any: yaml)."""
        if isinstance(value, dict):
            below = f"{path}." if path else ""
            return {
                name: self.setting(f"{below}{name}", part, declared=declared)
                for name, part in value.items()
            }
        if isinstance(value, list):
            named = named_by_option(value, path)
            return [self.setting(name, part, declared=declared) for name, part in named]
        if value != "" and is_secret(path, value, declared=declared):
            return MASK
        return self.text(value) if isinstance(value, str) else value


_known: set[str] = set()
_masker = Masker()
_remembering = threading.RLock()  # a signal may come in the middle


def remember(secrets: Iterable[str]) -> None:
    """Mask these, from now on, in all that leaves this process."""
    global _masker  # noqa: PLW0603 -- of the process, as its standard output is
    with _remembering:
        new = {one for one in secrets if len(one) >= MIN_LENGTH} - _known
        if new:
            _known.update(new)
            _masker = Masker(_known)


def known_secrets() -> tuple[str, ...]:
    """Return what this process masks, for a process that it starts."""
    return tuple(sorted(_known))


def num_pending(text: str) -> int:
    """Return how many letters at the end of a text may go on as a secret in the next one."""
    return _masker.num_pending(text)


def masked(text: str) -> str:
    """Return a line as it may leave this process."""
    return _masker.text(text)


def masked_values(value: Any) -> Any:
    """Return data as they may be written down (Any: json)."""
    return _masker.values(value)


def masked_setting(path: str, value: Any, *, declared: Collection[str] = ()) -> Any:
    """Return a value of a configuration as it may be written down (Any: yaml)."""
    return _masker.setting(path, value, declared=declared)


class MaskedStream:
    """A text stream that writes no secret.

    Args:
        stream: that is written to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._held = ""  # may be the beginning of a secret, which the next write ends
        self._writing = threading.RLock()  # many threads print

    def write(self, text: str) -> int:
        """Write the text; return its length, as a stream does."""
        if not isinstance(text, str):
            return self._stream.write(text)
        with self._writing:
            whole = self._held + text
            shown = len(whole) - num_pending(whole)
            self._held = whole[shown:]
            self._stream.write(masked(whole[:shown]))
        return len(text)

    def end(self) -> None:
        """Write what was held back."""
        with self._writing:
            held, self._held = self._held, ""
            self._stream.write(masked(held))
            self._stream.flush()

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each, and nothing of other threads between them."""
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:  # Any: as the stream's own
        return getattr(self._stream, name)


def _hidden_option(found: re.Match[str]) -> str:
    if not is_secret(found["name"], found["value"]):
        return found[0]
    return f"{found[0][: found.start('value') - found.start()]}{MASK}"


def _hidden(found: re.Match[str]) -> str:
    return f"{found['before'] or found['at'] or found['name']}{MASK}"


def _ways(secret: str) -> set[str]:
    """Return how a secret may stand in a text: as it is, in an address, in JSON, in one line."""
    plain = {secret, _SCHEME.sub("", secret, count=1), unquote(secret)}
    plain |= {line for line in secret.splitlines()[1:-1] if not line.startswith("-----")}
    ways = {way for one in plain for way in (one, quote(one, safe=""), quote(one))}
    ways |= {" ".join(one.split()) for one in plain}
    ways |= {said[1:-1] for one in plain for said in (json.dumps(one), repr(one))}
    return {way for way in ways if len(way) >= MIN_LENGTH}


def _bounded(secret: str) -> str:
    text = re.escape(secret)
    return rf"(?<![\w.]){text}(?![\w.])" if secret.isdigit() else text
