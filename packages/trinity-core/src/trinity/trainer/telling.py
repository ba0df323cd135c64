"""Tell the other processes of a trainer something small.

It goes as JSON: what comes over a network is read, and never run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from trinity import errors
from trinity.errors import TrinityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.distributed import ProcessGroup


def told(message: Mapping[str, Any], *, group: ProcessGroup) -> list[dict[str, Any]]:
    """Return what each process tells, in the order of their ranks; all call it.

    Args:
        message: of this process; what JSON can hold.
        group: the processes.
    """
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


def words_of(error: TrinityError) -> dict[str, str]:
    """Return what :func:`error_of` makes the error of again."""
    return {"type": type(error).__name__, "text": str(error)}


def error_of(words: Mapping[str, str]) -> TrinityError:
    """Return the error that another process told; one of a type with own fields becomes plain."""
    kind = vars(errors).get(words["type"])
    if not (isinstance(kind, type) and issubclass(kind, TrinityError)) or "__init__" in vars(kind):
        kind = TrinityError
    return kind(words["text"])
