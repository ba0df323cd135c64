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
    "MASKED",
    "Masker",
    "is_secret",
    "known_secrets",
    "masked",
    "masked_setting",
    "masked_values",
    "num_pending",
    "remember",
    "secrets_of",
]

MASK = "****"
MIN_LENGTH = 8
_SHORT = 3  # letters at the end of a line that may well be no beginning of a secret
_NAME = re.compile(
    r"api[_-]?key|access[_-]?key|(access|auth)[_-]?token|secret|passw|passphrase|credential"
    r"|authorization|(^|[._-])cookies?(\.|$)|[_-]pwd$|(^|[._-])pass$",
    re.IGNORECASE,
)
_LAST_WORD = re.compile(r"(^|[._-])(token|key|signature|sig)s?$", re.IGNORECASE)
_IN_TOKENS = re.compile(r"(^|[._-])tokens\.[^.]+$", re.IGNORECASE)  # tokens: {hub: ...}
_NO_NAME = re.compile(  # what a text of its own stands under, that of a place or of a column
    r"[_-](env|file|path|dir|name|type|header)$"
    r"|(^|[._-])(pad|eos|bos|unk|sep|cls|mask|stop)[_-]tokens?$"
    r"|(^|[._-])(max|min|num|new)([_-]new)?[_-]tokens?$|(^|[._-])(forward|backward|first|last|num|max)[_-]pass$"
    r"|(prompt|response|messages?|tools?|image|video|chosen|rejected|reward(_fn)?|workflow|feature"
    r"|metric|hash|label|answer|question|column|sort)[_-]keys?$",
    re.IGNORECASE,
)
_SPECIAL = re.compile(r"(^|[._-])(special|stop)[_-]tokens\.", re.IGNORECASE)
_INTERPOLATION = re.compile(r"\$\{[^}]*\}")
_NAMED_VARIABLE = re.compile(r"[_-]env$", re.IGNORECASE)
_WORD = re.compile(r"[a-z_]{1,20}|[A-Z]+(_[A-Z]+)+|<.*>")  # question, OPENAI_API_KEY, <|pad|>
_SCHEME = re.compile(r"(bearer|basic|token)\s+", re.IGNORECASE)
# In addresses: user:password@, a token in place of a user, ?password=; digits behind the colon of a
# web address are a port.
_IN_ADDRESS = re.compile(
    r"(?P<before>(?<![a-z0-9+.-])(?:(?P<web>(?:https?|wss?)(?=:))"
    r"|(?!(?:https?|wss?):)[a-z][a-z0-9+.-]{0,30})?://[^\s/:@?#\"'<>]*:)(?!\**@)(?(web)(?!\d+(?:[/?#]|$)))(?P<password>[^\s\"'<>]+)(?=@)"
    r"|(?P<at>://)(?!(?!gh[a-z]_|hf_|sk-)[a-z_.-]+@)(?P<token>[^\s/:@*]+)(?=@)"
    r"|(?P<name>[?&](?:[^=&?\s]*[_-]|ssl)?(?:passw[^=&?\s]*|secret|token|api[_-]?key|sig(?:nature)?"
    r"|key(?==[^&\s]{16}))=)(?!\**(?:[&\s]|$))(?P<option>[^&\s\"'<>]+)",
    re.IGNORECASE,
)
_OPTION = re.compile(  # --name value, --name=value
    r"(?<![\w-])--?(?P<name>[a-z][\w.-]{0,60})(?:=|[ \t]+)(?P<value>[^\s\"']+)", re.IGNORECASE
)
_KEY = re.compile(  # as vendors write theirs: known wherever it stands
    r"(?<![\w-])(?:sk-|hf_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza)(?=[\w-]*\d)[\w-]{16,}"
)
MASKED = re.compile(r"^\*{4}$|://\S*\*{4}|(?<![\w-])--?[a-z][\w.-]*[=\s]\*{4}", re.IGNORECASE)
_LINE_END = r"(?:\s*\n\s*)?"


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
    if _NO_NAME.search(name) or _SPECIAL.search(path):
        return False
    if isinstance(value, (int, float)):
        return _NAME.search(name) is not None or name.lower().endswith("token")
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)  # authToken
    is_word = isinstance(value, str) and _WORD.fullmatch(value) is not None
    is_token = _LAST_WORD.search(words) is not None or _IN_TOKENS.search(path) is not None
    return _NAME.search(path) is not None or (is_token and not is_word)


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
            found |= {str(value), *(re.split(r"[\s,;=]+", value) if _is_list(path, value) else ())}
        elif isinstance(value, str):
            found |= _of_addresses(value) | _of_options(value)
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
        text = _IN_ADDRESS.sub(_hidden, text) if "://" in text else text
        return _OPTION.sub(_hidden_option, text) if "-" in text else text

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
        return longest + ends if longest > (_SHORT if ends else 0) else 0

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
            named = _named_by_option(value, path)
            return [self.setting(name, part, declared=declared) for name, part in named]
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


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings by path; the entries of a list have its own."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(part, f"{path}.{name}" if path else str(name))
    elif isinstance(value, (list, tuple)):
        for name, part in _named_by_option(value, path):
            yield from _leaves(part, name)
    else:
        yield path, value


def _named_by_option(values: Iterable[Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a list, and by which path: behind ``--password`` it is that of one."""
    option = ""
    for value in values:
        yield f"{path}.{option}" if option else path, value
        is_option = isinstance(value, str) and re.fullmatch(r"--?[a-zA-Z][\w.-]*", value)
        option = value.lstrip("-") if is_option else ""


def _is_list(path: str, value: Any) -> bool:
    """Return whether it may hold several, as api_keys: "a,b" and a cookie do."""
    return isinstance(value, str) and path.lower().endswith(("s", "cookie"))


def _of_addresses(text: str) -> set[str]:
    if "://" not in text:
        return set()
    found = [match.groupdict() for match in _IN_ADDRESS.finditer(text)]
    whole = {one[name] for one in found for name in ("password", "token", "option") if one[name]}
    return whole | {one.partition("@")[0] for one in whole}  # where that ends, nobody can tell


def _of_options(text: str) -> set[str]:
    return {one["value"] for one in _OPTION.finditer(text) if is_secret(one["name"], one["value"])}


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
