"""Secrets: which values of a configuration are some, and texts without them.

A secret is a text under a name like password, token, key or secret, a credential in a URL, and what
``log.secrets`` declares. One of less than eight characters is hidden as a setting and not looked
for in other texts, where it would hide words. Metrics are none.

    configuration, environment --remember--> this process and its workers --masked--> every line
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

__all__ = [
    "MASK",
    "Masker",
    "is_secret",
    "known_secrets",
    "masked",
    "masked_setting",
    "masked_values",
    "remember",
    "secrets_of",
]

MASK = "****"
MIN_LENGTH = 8
_NAME = re.compile(
    r"api[_-]?key|access[_-]?key|(access|auth)[_-]?token|secret|passw|[_-]pwd$|credential"
    r"|authorization",
    re.IGNORECASE,
)
_LAST_WORD = re.compile(r"(^|[._-])(token|key)s?$", re.IGNORECASE)
_NO_NAME = re.compile(  # what a text of its own stands under, that of a place or of a column
    r"[_-](env|file|path|dir|name|type|header)$|(^|[._-])(pad|eos|bos|unk|sep|cls|mask|stop)[_-]tokens?$"
    r"|(prompt|response|messages?|tools?|image|video|chosen|rejected|reward(_fn)?|workflow|feature"
    r"|metric|hash|label|answer|question|column|sort)[_-]keys?$",
    re.IGNORECASE,
)
_INTERPOLATION = re.compile(r"\$\{[^}]*\}")
_NAMED_VARIABLE = re.compile(r"[_-]env$", re.IGNORECASE)
_WORD = re.compile(r"[a-z_]{1,20}|[A-Z]+(_[A-Z]+)+|<.*>")  # question, OPENAI_API_KEY, <|pad|>
_SCHEME = re.compile(r"(bearer|basic|token)\s+", re.IGNORECASE)
# In addresses: user:password@, a token in place of a user, ?password=
_IN_ADDRESS = re.compile(
    r"(?P<before>://[^\s/:@?#]*:)(?!\**@|\d*/)(?P<password>[^\s/]+|[^\s@]+)(?=@)"
    r"|(?P<at>://)(?!(?!gh[a-z]_|hf_|sk-)[a-z_.-]+@)(?P<token>[^\s/:@*]+)(?=@)"
    r"|(?P<name>[?&](?:[^=&?\s]*[_-]|ssl)?(?:passw[^=&?\s]*|secret|token|api[_-]?key)=)"
    r"(?!\**(?:[&\s]|$))(?P<option>[^&\s\"'<>]+)",
    re.IGNORECASE,
)


def is_secret(path: str, value: Any = "", *, declared: Collection[str] = ()) -> bool:
    """Return whether a value is one by its name; what is nested in it does not count.

    >>> is_secret("auth.api_key", "sk-1"), is_secret("eos_token", "x1"), is_secret("key", "id")
    (True, False, False)

    Args:
        path: of the setting, or the name of a variable.
        value: that stands there (Any: yaml).
        declared: further names.
    """
    name = path.rpartition(".")[2]
    if isinstance(value, bool) or value is None:
        return False
    if name in declared or path in declared:
        return True
    if _NO_NAME.search(name):
        return False
    if isinstance(value, (int, float)):
        return _NAME.search(name) is not None or name.lower().endswith("token")
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)  # authToken
    is_word = isinstance(value, str) and _WORD.fullmatch(value) is not None
    return _NAME.search(path) is not None or (_LAST_WORD.search(words) is not None and not is_word)


def secrets_of(
    values: Mapping[str, Any],
    *,
    env: Mapping[str, str],
    declared: Collection[str] = (),
) -> set[str]:
    """Return the secrets among settings, and those of the variables that they name.

    Args:
        values: of a configuration, nested or by path, or of an environment (Any: yaml).
        env: where the variables are.
        declared: names of further settings and variables.
    """
    found: set[str] = set()
    for path, value in _leaves(values, ""):
        if is_secret(path, value, declared=declared):
            found |= {str(value), *(re.split(r"[\s,]+", value) if _is_list(path, value) else ())}
        elif isinstance(value, str):
            found |= _of_addresses(value)
            if _NAMED_VARIABLE.search(path) and value in env:
                found |= {env[value], *_of_addresses(env[value])}
    return {one for one in found if one != MASK and not _INTERPOLATION.fullmatch(one)}


class Masker:
    """Hides secrets wherever they stand.

    Args:
        secrets: that are known.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        ways = sorted({way for one in secrets for way in _ways(one)}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_bounded, ways))) if ways else None

    def known(self, text: str) -> str:
        """Return a text without the secrets that are known."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def text(self, text: str) -> str:
        """Return a text without the secrets that are known, and without those of addresses."""
        text = self.known(text)
        return _IN_ADDRESS.sub(_hidden, text) if "://" in text else text

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
            return [self.setting(path, part, declared=declared) for part in value]
        if value != "" and is_secret(path, value, declared=declared):
            return MASK
        return self.text(value) if isinstance(value, str) else value


_known: set[str] = set()
_masker = Masker()


def remember(secrets: Iterable[str]) -> None:
    """Mask these, from now on, in all that leaves this process."""
    global _masker  # noqa: PLW0603 -- of the process, as its standard output is
    new = {one for one in secrets if len(one) >= MIN_LENGTH} - _known
    if new:
        _known.update(new)
        _masker = Masker(_known)


def known_secrets() -> tuple[str, ...]:
    """Return what this process masks, for a process that it starts."""
    return tuple(sorted(_known))


def masked(text: str) -> str:
    """Return a line as it may leave this process."""
    return _masker.text(text)


def masked_values(value: Any) -> Any:
    """Return data as they may be written down (Any: json)."""
    return _masker.values(value)


def masked_setting(path: str, value: Any, *, declared: Collection[str] = ()) -> Any:
    """Return a value of a configuration as it may be written down (Any: yaml)."""
    return _masker.setting(path, value, declared=declared)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings by path; the entries of a list have its own."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(part, f"{path}.{name}" if path else str(name))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _leaves(part, path)
    else:
        yield path, value


def _is_list(path: str, value: Any) -> bool:
    return isinstance(value, str) and path.lower().endswith("s")  # api_keys: "a,b"


def _of_addresses(text: str) -> set[str]:
    if "://" not in text:
        return set()
    found = [match.groupdict() for match in _IN_ADDRESS.finditer(text)]
    return {one[name] for one in found for name in ("password", "token", "option") if one[name]}


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
