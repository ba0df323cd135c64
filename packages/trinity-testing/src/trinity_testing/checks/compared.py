"""Copy what a part was given, and say where it differs afterwards."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from trinity.common.config.base import StrictModel

__all__ = ["copied", "difference"]


def copied(value: Any) -> Any:
    """Return a copy that shares nothing with the value."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, StrictModel):
        return value.model_dump()
    if isinstance(value, Mapping):
        return {name: copied(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [copied(part) for part in value]
    return copy.deepcopy(value)


def difference(before: Any, after: Any) -> str:  # Any: whatever a part was given
    """Return in words where two values differ; an empty string if nowhere."""
    if isinstance(after, StrictModel):
        after = after.model_dump()
    for kind, compare in (
        (torch.Tensor, _difference_of_tensors),
        (Mapping, _difference_of_mappings),
        ((list, tuple), _difference_of_rows),
    ):
        if isinstance(before, kind) and isinstance(after, kind):
            return compare(before, after)
    return "" if repr(before) == repr(after) else f": {before!r:.60}, and {after!r:.60}"


def _difference_of_mappings(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> str:
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after or name not in before:
            return f": {name!r} is {'gone' if name in before else 'there'}"
        words = difference(before[name], after[name])
        if words:
            return f", at {name!r}{words}"
    return ""


def _difference_of_rows(before: Sequence[Any], after: Sequence[Any]) -> str:
    if len(before) != len(after):
        return f": {len(before)} entries, and {len(after)}"
    found = (difference(one, other) for one, other in zip(before, after, strict=True))
    return next((f" [{place}]{words}" for place, words in enumerate(found) if words), "")


def _difference_of_tensors(before: torch.Tensor, after: torch.Tensor) -> str:
    if before.shape != after.shape or before.dtype != after.dtype:
        return f": {before.dtype} {list(before.shape)}, and {after.dtype} {list(after.shape)}"
    same = (before == after) | (before.isnan() & after.isnan())
    if bool(same.all()):
        return ""
    place = (~same).nonzero()[0].tolist()
    at = tuple(place)
    return f" at {place}: {before[at].item():.6g}, and {after[at].item():.6g}"
