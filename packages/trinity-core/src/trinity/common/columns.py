"""Experiences as columns and rows, and both as bytes.

    experiences      tokens 7 3 5 | 7 9      reward .5 | 1.      info {...} | {...}
    columns          values 7 3 5 7 9 , sizes 3 2                                   (numpy)
    rows             [{"eid": ..., "reward": .5, "info": ...}, {...}]               (the rest)

``pack`` makes bytes of both: JSON, then the columns. ``common/codec.py`` puts a head before them,
samples have one of their own (``runtime/record/sample_files.py``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from trinity.common.experience import Experience

__all__ = ["TENSORS", "Column", "columns_of", "joined_column", "pack", "unpack"]


TENSORS = (
    "tokens", "logprobs", "action_mask", "token_level_reward", "advantages", "returns",
    "chosen", "rejected", "teacher_logprobs",
)  # fmt: skip
_WIDTHS = {"int32": 4, "int64": 8, "float16": 2, "float32": 4, "float64": 8, "bool": 1}  # bytes
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, slots=True)
class Column:
    """One tensor field of all experiences; token ids are int32 wherever they fit."""

    values: np.ndarray[Any, Any]  # end to end
    sizes: np.ndarray[Any, Any]  # int32; -1: this experience has None

    @classmethod
    def of(cls, tensors: Sequence[Tensor | None]) -> Column | None:
        """Return the column; None: no experience has the field."""
        import torch

        present = [tensor for tensor in tensors if tensor is not None]
        if not present:
            return None
        sizes = [-1 if tensor is None else tensor.size(0) for tensor in tensors]
        values = torch.cat(present).detach().numpy()
        return cls(_narrow(values), np.array(sizes, dtype=np.int32))

    @classmethod
    def joined(cls, parts: Sequence[Column | int]) -> Column | None:
        """Return parts end to end; a number stands for so many experiences without the field."""
        columns = [part for part in parts if not isinstance(part, int)]
        if not columns:
            return None
        if len(parts) == 1:
            return columns[0]
        sizes = [
            np.full(part, -1, dtype=np.int32) if isinstance(part, int) else part.sizes
            for part in parts
        ]
        values = np.concatenate([column.values for column in columns])
        return cls(_narrow(values), np.concatenate(sizes))

    def is_same(self, other: Column | None) -> bool:
        """Return whether the other holds the same numbers."""
        return other is self or (
            other is not None
            and np.array_equal(self.sizes, other.sizes)
            and np.array_equal(self.values, other.values)
        )

    def copied(self) -> Column:
        """Return the same numbers in memory of the caller's own."""
        return Column(self.values.copy(), self.sizes)

    def cut(self, start: int, stop: int) -> Column:
        """Return the part of these experiences, in the same memory."""
        if (start, stop) == (0, len(self.sizes)):
            return self
        before = int(np.maximum(self.sizes[:start], 0).sum())
        length = int(np.maximum(self.sizes[start:stop], 0).sum())
        return Column(self.values[before : before + length], self.sizes[start:stop])

    def arrays(self) -> list[np.ndarray[Any, Any] | None]:
        """Return each experience's numbers, in the same memory."""
        ends: list[int] = np.cumsum(np.maximum(self.sizes, 0)).tolist()
        sizes: list[int] = self.sizes.tolist()
        return [
            None if size < 0 else self.values[end - size : end]
            for size, end in zip(sizes, ends, strict=True)
        ]

    def tensors(self) -> list[Tensor | None]:
        """Return each experience's tensor, in memory that belongs to the reader."""
        import torch

        wide = self.values.dtype == np.int32
        owned = self.values.astype(np.int64) if wide else self.values.copy()
        sizes: list[int] = self.sizes.tolist()
        split: Any = torch.split  # untyped
        if -1 not in sizes:
            return list(split(torch.from_numpy(owned), sizes))
        parts = iter(split(torch.from_numpy(owned), [size for size in sizes if size >= 0]))
        return [next(parts) if size >= 0 else None for size in sizes]


def _narrow(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if values.dtype != np.int64:
        return values
    fits = not values.size or (values.min() >= _INT32.min and values.max() <= _INT32.max)
    return values.astype(np.int32) if fits else values


def pack(
    rows: Sequence[Mapping[str, Any]],  # Any: json
    columns: Mapping[str, Column],
    *,
    dumps: Callable[[Any], str] = json.dumps,
    is_small: bool = False,
) -> tuple[bytes, bytes]:
    """Return the JSON of rows and of what the columns are, and the columns, each as bytes.

    A column that stands under two names is written once.

    Args:
        rows: the fields that are no columns.
        columns: by name.
        dumps: returns the JSON.
        is_small: whether masks are written in bits, and a number that a whole row shares once.
    """
    described: dict[str, dict[str, Any]] = {}
    names: dict[int, str] = {}
    body = []
    longest = columns["tokens"].values.size if "tokens" in columns else 0
    for name, column in columns.items():
        first = names.setdefault(id(column), name)
        if first != name:
            described[name] = {"same": first}
            continue
        values = column.values
        described[name] = {"dtype": str(values.dtype), "sizes": column.sizes.tolist()}
        if is_small:
            values = _small(column, described[name], longest=longest)
        body.append(values.tobytes())
    return dumps({"columns": described, "rows": rows}).encode(), b"".join(body)


def unpack(
    described: Mapping[str, Mapping[str, Any]], data: bytes, start: int
) -> dict[str, Column]:
    """Return the columns of ``pack``, in the memory of the bytes where they lie there as they are.

    Args:
        described: what the JSON says of the columns.
        data: the bytes, to the end of the columns.
        start: where the columns begin in them.

    Raises:
        ValueError: the bytes are not what is described; so is a KeyError or a TypeError.
    """
    columns: dict[str, Column] = {}
    for name, one in described.items():
        if "same" in one:
            columns[name] = columns[one["same"]]
            continue
        longest = columns["tokens"].values.size if "tokens" in columns else 0
        columns[name], start = _unpacked(one, data, start, longest=longest)
    if start != len(data):
        raise ValueError("the numbers are not as many as were written")
    return columns


def _small(column: Column, described: dict[str, Any], *, longest: int) -> np.ndarray[Any, Any]:
    """Return the numbers of a column in fewer bytes, and add to the description how."""
    values, sizes = column.values, column.sizes
    if values.dtype == np.bool_:
        described["dtype"] = "bits"
        return np.packbits(values)
    filled = np.flatnonzero(sizes > 0)
    if values.dtype.kind != "f" or not len(filled) or values.size > longest:  # see _unpacked
        return values
    starts = np.cumsum(sizes[filled]) - sizes[filled]
    is_once = np.minimum.reduceat(values, starts) == np.maximum.reduceat(values, starts)
    is_kept = np.repeat(~is_once, sizes[filled])
    is_kept[starts] = True
    described["once"] = filled[is_once].tolist()
    kept: np.ndarray[Any, Any] = values[is_kept]
    return kept


def _unpacked(
    described: Mapping[str, Any], data: bytes, start: int, *, longest: int
) -> tuple[Column, int]:
    sizes, dtype = np.array(described["sizes"], dtype=np.int32), described["dtype"]
    stored = np.maximum(sizes, 0).astype(np.int64)
    once = described.get("once")
    if once:
        if int(stored.sum()) > longest:  # a damaged size would make as many numbers as it says
            raise ValueError("there are more numbers than tokens")
        stored[once] = 1
    count = int(stored.sum())
    num_bytes = -(-count // 8) if dtype == "bits" else count * _WIDTHS[dtype]
    if num_bytes > len(data) - start:
        raise ValueError("the numbers end early")
    if dtype == "bits":
        bits = np.frombuffer(data, dtype=np.uint8, count=num_bytes, offset=start)
        values = np.unpackbits(bits, count=count).view(np.bool_)
    else:
        values = np.frombuffer(data, dtype=dtype, count=count, offset=start)
    if once:
        times = np.ones(count, dtype=np.int64)
        times[(np.cumsum(stored) - stored)[once]] = np.maximum(sizes[once], 0)
        values = np.repeat(values, times)
    return Column(values, sizes), start + num_bytes


def columns_of(experiences: Sequence[Experience]) -> dict[str, Column]:
    """Return the tensors of all of them; returns that are the advantages are the same column."""
    joined = {name: joined_column(experiences, name) for name in TENSORS}
    columns = {name: column for name, column in joined.items() if column is not None}
    if "returns" in columns and columns["returns"].is_same(columns.get("advantages")):
        columns["returns"] = columns["advantages"]
    return columns


def joined_column(experiences: Sequence[Experience], name: str) -> Column | None:
    """Return a field of all of them as a column; the numbers of untouched tensors are copied."""
    parts: list[tuple[Mapping[str, Column], int, int]] = []
    for experience in experiences:
        own = experience.__dict__
        if name in own or "_columns" not in own:
            return Column.of([getattr(each, name) for each in experiences])
        columns, place = own["_columns"], own["_place"]
        if parts and parts[-1][0] is columns and parts[-1][2] == place:
            parts[-1] = (columns, parts[-1][1], place + 1)
        else:
            parts.append((columns, place, place + 1))
    return Column.joined(
        [
            columns[name].cut(start, stop) if name in columns else stop - start
            for columns, start, stop in parts
        ]
    )
