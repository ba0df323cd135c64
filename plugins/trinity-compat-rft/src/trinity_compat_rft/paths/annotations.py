"""``trinity.utils.annotations``: marks on classes and functions."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["Deprecated", "Experimental"]

T = TypeVar("T")


def Experimental(marked: T) -> T:  # noqa: N802 -- published
    """Return it, marked as something that may still change (``_is_experimental``)."""
    marked._is_experimental = True  # type: ignore[attr-defined]
    return marked


def Deprecated(marked: T) -> T:  # noqa: N802 -- published
    """Return it, marked as something that is not to be used any more (``_is_deprecated``)."""
    marked._is_deprecated = True  # type: ignore[attr-defined]
    return marked
