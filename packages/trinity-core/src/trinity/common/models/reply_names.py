"""Which call of its run a reply answered: its name, ``request-index``, in an experience's info."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["REPLY_NAMES", "name_of", "order_of", "reply_info"]

REPLY_NAMES = "reply_names"  # in info


def name_of(request: int, index: int) -> str:
    """Return the name of a reply.

    Args:
        request: its number in the run, from 0.
        index: of the reply among those of the request, from 0.
    """
    return f"{request}-{index}"


def reply_info(replies: Sequence[tuple[int, str]]) -> dict[str, Any]:
    """Return what ``info`` says of the replies in an experience.

    >>> reply_info([(0, "3-0"), (9, "5-0")])
    {'reply_names': [[0, '3-0'], [9, '5-0']]}

    Args:
        replies: the first token of each behind the prompt, and its name.
    """
    return {REPLY_NAMES: [list(reply) for reply in replies]}


def order_of(info: dict[str, Any]) -> list[tuple[int, tuple[int, int]]]:
    """Return ``(first token, (request, index))`` of each reply; none where info does not say it.

    >>> order_of({"reply_names": [[0, "3-0"], [9, "12-1"]]})
    [(0, (3, 0)), (9, (12, 1))]
    >>> order_of({"reply_names": "a workflow's own"})
    []
    """
    try:
        return [(int(first), _numbers(name)) for first, name in info.get(REPLY_NAMES, ())]
    except (TypeError, ValueError, AttributeError):  # an entry of that name is the workflow's own
        return []


def _numbers(name: str) -> tuple[int, int]:
    request, index = name.split("-")
    return int(request), int(index)
