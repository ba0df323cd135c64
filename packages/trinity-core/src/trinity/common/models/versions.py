"""Which token of a reply was sampled with which version of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.ports import Completion

__all__ = ["joined_spans", "spans_of", "version_info"]

Spans = tuple[tuple[int, int], ...]


def spans_of(completion: Completion) -> Spans:
    """Return ``(first token, version)`` of each stretch of one version, in order."""
    return completion.version_spans or ((0, int(completion.weight_version)),)


def joined_spans(before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]) -> Spans:
    """Return the stretches of a text that goes on, without those that change nothing.

    >>> joined_spans([(0, 1)], [(8, 1), (12, 3)])
    ((0, 1), (12, 3))
    """
    joined = [*before]
    for first, version in after:
        if not joined or joined[-1][1] != version:
            joined.append((first, version))
    return tuple(joined)


def version_info(spans: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return what an experience's ``info`` says: the oldest version, and where there are more.

    >>> version_info([(0, 4)])
    {'model_version': 4}
    >>> version_info([(0, 4), (9, 5)])
    {'model_version': 4, 'version_spans': [[0, 4], [9, 5]]}
    """
    info: dict[str, Any] = {"model_version": min(version for _, version in spans)}
    if len(spans) > 1:
        info["version_spans"] = [list(span) for span in spans]
    return info
