"""Messages between ranks, as JSON: `all_gather_object` of torch would unpickle them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from trinity import errors
from trinity.errors import TrinityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.metrics import Metrics

_DIFFERENT_PLANS = (
    "the trainer's ranks have cut a batch in different ways, so that rows of it would be trained "
    "twice or never: their machines differ. Let all ranks have the same hardware and the same "
    "versions, or set trainer.num_ranks: 1."
)


def all_gather_json(
    message: Mapping[str, Any], *, group: distributed.ProcessGroup
) -> list[dict[str, Any]]:
    """Return the message of each rank, in their order; all call it (Any: what JSON can hold)."""
    body = torch.frombuffer(bytearray(json.dumps(message), "utf-8"), dtype=torch.uint8)
    size = distributed.get_world_size(group)
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    distributed.all_gather(lengths, torch.tensor([len(body)]), group=group)
    width = max(int(length) for length in lengths)
    padded = torch.zeros(width, dtype=torch.uint8)
    padded[: len(body)] = body
    bodies = [torch.empty_like(padded) for _ in range(size)]
    distributed.all_gather(bodies, padded, group=group)
    return [
        json.loads(bytes(found[: int(length)].tolist()))
        for found, length in zip(bodies, lengths, strict=True)
    ]


def error_to_json(error: TrinityError) -> dict[str, str]:
    return {"type": type(error).__name__, "text": str(error)}


def error_from_json(words: Mapping[str, str]) -> TrinityError:
    """Return the error of another rank; one of a type with fields of its own becomes plain."""
    kind = vars(errors).get(words["type"])
    if not (isinstance(kind, type) and issubclass(kind, TrinityError)) or "__init__" in vars(kind):
        kind = TrinityError
    return kind(words["text"])


def total_of(outcomes: Sequence[Mapping[str, Any]]) -> Metrics:
    """Return the sums of what all ranks told, if none had an error and all cut alike."""
    for found in outcomes:
        if "error" in found:
            raise error_from_json(found["error"])
    if len({found["plans"] for found in outcomes}) > 1:
        raise TrinityError(_DIFFERENT_PLANS)
    totals: Metrics = {}
    for found in outcomes:
        for name, value in found["metrics"].items():
            totals[name] = totals.get(name, 0.0) + value
    return totals
