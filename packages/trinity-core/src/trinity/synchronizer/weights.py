"""Weights on their way to the engines: flat bytes by name, which a reader uses in place."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.ports import WeightSnapshot, WeightVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class _Packed:
    values: np.ndarray[Any, Any]  # uint8, contiguous
    dtype: str  # of torch: "bfloat16"
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """Weights that need no torch until they are used. Pickles with its bytes out of band."""

    version: WeightVersion
    packed: Mapping[str, _Packed]

    @classmethod
    def of(cls, snapshot: WeightSnapshot) -> PackedWeights:
        """Return the weights as views of the snapshot's tensors, or copies of those on a GPU."""
        import torch

        packed = {}
        for name, tensor in snapshot.tensors.items():
            flat = tensor.detach().cpu().contiguous().view(-1)
            dtype = str(tensor.dtype).removeprefix("torch.")
            packed[name] = _Packed(flat.view(torch.uint8).numpy(), dtype, tuple(tensor.shape))
        return cls(snapshot.version, packed)

    def snapshot(self) -> WeightSnapshot:
        """Return the weights as tensors that must only be read: they are views of these bytes."""
        return WeightSnapshot(
            version=self.version,
            tensors={name: _tensor(packed) for name, packed in self.packed.items()},
        )


def _tensor(packed: _Packed) -> Tensor:
    import torch

    with warnings.catch_warnings():  # torch has no tensors that cannot be written to
        warnings.simplefilter("ignore", UserWarning)
        flat = torch.from_numpy(packed.values)
    return flat.view(getattr(torch, packed.dtype)).view(packed.shape)
