"""The tensors of many experiences as a few arrays, one for each field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["TENSORS", "Column"]

TENSORS = (
    "tokens", "logprobs", "action_mask", "token_level_reward", "advantages", "returns",
    "chosen", "rejected", "teacher_logprobs",
)  # fmt: skip
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
