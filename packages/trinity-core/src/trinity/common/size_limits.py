"""The limits of what comes in from code and servers of others; a message says which was reached."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from trinity.common.secrets import masked
from trinity.errors import WorkflowError

__all__ = [
    "MAX_INFO",
    "MAX_MESSAGE",
    "MAX_NAME",
    "MAX_REPLY",
    "bounded",
    "check_info",
    "shortened",
    "shown",
]

MAX_MESSAGE = 4_000  # letters of an error's text
MAX_NAME = 200  # letters of a metric's name
MAX_INFO = 4_000_000  # bytes of an experience's info, about
MAX_REPLY = 16_000_000  # bytes of the reply of a judge's server
_NUMBER = 8  # bytes
_AHEAD = 4_096  # letters: as long as a secret that the cut could fall into
_REST = 40  # letters that say how much was left out


def shortened(text: str, limit: int = MAX_MESSAGE) -> str:
    """Return the beginning of a text, and how much was left out.

    >>> shortened("x" * 100, 6)
    'xxxxxx (94 more letters)'
    """
    if len(text) <= limit + _REST:  # what is short already stays as it is
        return text
    begun = masked(text[: limit + _AHEAD])[:limit]  # a secret that is cut in two is no secret more
    return f"{begun} ({len(text) - limit:,} more letters)"


def shown(value: Any) -> str:  # Any: of a user's code
    """Return a value in one line of a message, without a text of all of it."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 80
    short.maxlist = short.maxtuple = short.maxdict = short.maxset = 40
    return " ".join(f"{short.repr(value):.80}".split())


def bounded(error: BaseException) -> BaseException:
    """Shorten the texts that an error holds, and those before it: they are copied often."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        one.args = tuple(shortened(arg) if isinstance(arg, str) else arg for arg in one.args)
        waiting += [before for before in (one.__cause__, one.__context__) if before is not None]
    return error


def check_info(info: Mapping[str, Any], *, what: str) -> None:
    """Refuse the info of an experience that would fill memory and disk.

    Raises:
        WorkflowError: it is too large; the message names the largest entry.
    """
    if _size(info) <= MAX_INFO:
        return
    largest = max(info, key=lambda name: _size(info[name]))
    raise WorkflowError(
        f"{what}: info has more than {MAX_INFO // 10**6} MB, most of it in {shown(largest)}. Write "
        f"large data to a file, and its path to info."
    )


def _size(value: Any) -> int:
    """Return about how many bytes a value has; counting ends above the limit."""
    size, waiting = 0, [value]
    while waiting and size <= MAX_INFO:
        one = waiting.pop()
        if isinstance(one, (str, bytes, bytearray)):
            size += len(one)
        elif isinstance(one, Mapping):
            size += _NUMBER * len(one)
            waiting += [*one, *one.values()]
        elif isinstance(one, (list, tuple, set)):
            size += _NUMBER * len(one)
            if size <= MAX_INFO:
                waiting += one
        else:
            size += int(getattr(one, "nbytes", _NUMBER))
    return size
