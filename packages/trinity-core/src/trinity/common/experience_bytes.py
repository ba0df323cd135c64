"""Experiences as bytes: a format with a version, numbers as they are, and no pickle.

    TRINITYX | version u32 | length u64 | json: the rows without tensors | safetensors

Bytes from outside cannot run code: json and safetensors hold data only.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from trinity.common.columns import TENSORS
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from trinity.common.experience import Experience

__all__ = ["VERSION", "from_bytes", "one_from_bytes", "to_bytes"]

MAGIC = b"TRINITYX"
VERSION = 1
_HEAD = struct.Struct("<IQ")


def to_bytes(experiences: Sequence[Experience]) -> bytes:
    """Return the experiences as bytes."""
    from safetensors.torch import save

    rows: list[dict[str, Any]] = []  # Any: what json holds
    tensors: dict[str, Tensor] = {}
    for place, experience in enumerate(experiences):
        row = experience.to_dict()
        for name in TENSORS:
            value = getattr(experience, name)
            if value is not None:
                tensors[f"{place}:{name}"] = value.detach().cpu().contiguous().clone()
            row.pop(name, None)
        rows.append(row)
    body = json.dumps(rows).encode()
    return MAGIC + _HEAD.pack(VERSION, len(body)) + body + save(tensors)


def from_bytes(data: bytes, *, make: Callable[[dict[str, Any]], Experience]) -> list[Experience]:
    """Return the experiences of ``to_bytes``.

    Args:
        data: the bytes.
        make: returns the experience of a row.

    Raises:
        DataError: the bytes are damaged, of another version, or of another format.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    start = len(MAGIC) + _HEAD.size
    if not data.startswith(MAGIC) or len(data) < start:
        raise DataError(
            "these bytes are no experiences of Experience.serialize. Pickled ones of other "
            "programs are not read, as a pickle may run code: write them anew."
        )
    version, length = _HEAD.unpack(data[len(MAGIC) : start])
    if version != VERSION:
        raise DataError(
            f"these experiences are of format {version}, this version of Trinity reads {VERSION}. "
            f"Write them anew with this version, or read them with the one that wrote them."
        )
    try:
        rows = json.loads(data[start : start + length])
        tensors = load(data[start + length :])
        return [make(_whole(row, place, tensors)) for place, row in enumerate(rows)]
    except (ValueError, TypeError, KeyError, AttributeError, SafetensorError) as error:
        raise DataError(
            f"these experiences are damaged: {error}. Write them anew; nothing of them was read."
        ) from error


def one_from_bytes(data: bytes, *, make: Callable[[dict[str, Any]], Experience]) -> Experience:
    """Return the one experience that the bytes hold.

    Args:
        data: the bytes.
        make: returns the experience of a row.

    Raises:
        DataError: as ``from_bytes``, or they hold another number of them.
    """
    experiences = from_bytes(data, make=make)
    if len(experiences) != 1:
        raise DataError(
            f"these bytes hold {len(experiences)} experiences. Use Experience.deserialize_many."
        )
    return experiences[0]


def _whole(row: dict[str, Any], place: int, tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {**row, **{name: tensors.get(f"{place}:{name}") for name in TENSORS}}
