"""The messages for a row of data that lacks a configured key, or holds nothing there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["no_such_key", "no_text", "no_value"]


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


def no_value(origin: str, *, key: str, setting: str) -> str:
    """Return the message for a row that holds null where the prompt should stand."""
    return (
        f"{origin}, has null in {key!r}, which format.{setting} names: the model would be asked "
        f"the text None. Correct or remove the row."
    )


def no_text(origins: Sequence[str], *, key: str, setting: str) -> str:
    """Return the notice for rows with an empty prompt, or null for an answer; at least one."""
    others = f" (and {len(origins) - 1} more rows)" if origins[1:] else ""
    what = "an empty text" if setting == "prompt_key" else "null"
    return f"{origins[0]}, has {what} in {key!r}, which format.{setting} names{others}."
