"""The message for a row of data that lacks a configured key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["no_such_key"]


def no_such_key(origin: str, *, key: str, row: Mapping[str, Any], setting: str) -> str:
    """Return the message for a row without a configured key.

    >>> no_such_key("t.jsonl, row 2", key="question", row={"qestion": 1}, setting="prompt_key")[:37]
    "t.jsonl, row 2, has no key 'question'"
    """
    keys = ", ".join(map(str, row)) or "no key at all"
    return (
        f"{origin}, has no key {key!r}, which format.{setting} names."
        f"{did_you_mean(key, map(str, row))} It has: {keys}. Correct the row, or format.{setting}."
    )
