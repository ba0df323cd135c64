"""Weights as one run of bytes, as they are broadcast, and what is told of them beside it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.synchronizer.weights import PackedWeights

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BLOCK = 8192  # 64-bit words whose order a checksum does not see
_ALIGNED = 16  # bytes: every tensor can be read where it lies, and all of them are whole words


@dataclass(frozen=True, slots=True)
class _Slice:
    """Where one tensor lies."""

    name: str
    dtype: str  # of torch: "bfloat16"
    shape: tuple[int, ...]
    begin: int  # bytes
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightManifest:
    """What a receiver is told of weights before they come, on another way than they do."""

    version: WeightVersion
    slices: tuple[_Slice, ...]
    num_bytes: int
    checksum: int | None  # None: it is told elsewhere, or what they lie in cannot change


class StagingBuffer:
    """The weights that were packed last; they stay until the next are packed.

    What is packed is a copy in CPU memory, so the trainer may go on while an engine that was away
    gets it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # who was away asks in another thread
        self._flat = torch.empty(0, dtype=torch.uint8)
        self._manifest: WeightManifest | None = None  # None: nothing whole was packed

    @property
    def flat(self) -> Tensor:
        """Return the bytes, uint8; they are not to be changed."""
        return self._flat

    def pack(self, snapshot: WeightSnapshot) -> WeightManifest:
        """Copy the weights, in place of those before them, and say what they are."""
        manifest = manifest_of(snapshot)
        with self._lock:
            self._manifest = None
            if len(self._flat) != manifest.num_bytes:
                self._flat = torch.zeros(manifest.num_bytes, dtype=torch.uint8)
            for one in manifest.slices:
                tensor = snapshot.tensors[one.name].detach().contiguous()
                self._flat[one.begin : one.end].copy_(tensor.view(-1).view(torch.uint8))
            self._manifest = replace(manifest, checksum=checksum(self._flat))
        return self._manifest

    def kept(self) -> PackedWeights | None:
        """Return a copy of what was packed last, by name; None: nothing was."""
        with self._lock:
            if self._manifest is None:
                return None
            return PackedWeights.of(views_of(self._flat.clone(), self._manifest))


def manifest_of(snapshot: WeightSnapshot) -> WeightManifest:
    """Return where each tensor will lie, without a checksum."""
    slices = tuple(_slices(snapshot.tensors))
    num_bytes = slices[-1].end + -slices[-1].end % _ALIGNED if slices else 0
    return WeightManifest(
        version=snapshot.version, slices=slices, num_bytes=num_bytes, checksum=None
    )


def views_of(flat: Tensor, manifest: WeightManifest) -> WeightSnapshot:
    """Return the weights by name, as views of these bytes."""
    tensors = {
        one.name: flat[one.begin : one.end].view(getattr(torch, one.dtype)).view(one.shape)
        for one in manifest.slices
    }
    return WeightSnapshot(version=manifest.version, tensors=tensors)


def checksum(flat: Tensor) -> int:
    """Return a number that tells lost, cut and mixed bytes, at the speed of memory.

    Words of one block of 64 KiB in another order have the same; against somebody who means harm it
    is of no use.

    >>> checksum(torch.ones(16, dtype=torch.uint8)) == 2 * 0x0101010101010101
    True
    """
    if flat.is_cuda:
        return checksum_by_torch(flat)
    words = flat.numpy().view(np.uint64)
    rest = len(words) % _BLOCK
    blocks = words[: len(words) - rest].reshape(-1, _BLOCK).sum(axis=1, dtype=np.uint64)
    sums = np.append(blocks, words[len(words) - rest :].sum(dtype=np.uint64))
    weights = 2 * np.arange(len(sums), 0, -1, dtype=np.uint64) - np.uint64(1)  # odd: none is lost
    return int((sums * weights).sum(dtype=np.uint64))


def checksum_by_torch(flat: Tensor) -> int:
    """Return the same number, computed where the bytes are: 64-bit integers wrap, signed or not.

    >>> checksum_by_torch(torch.ones(16, dtype=torch.uint8)) == 2 * 0x0101010101010101
    True
    """
    words = flat.view(torch.int64)
    rest = len(words) % _BLOCK
    blocks = words[: len(words) - rest].view(-1, _BLOCK).sum(dim=1)
    sums = torch.cat([blocks, words[len(words) - rest :].sum().view(1)])
    weights = 2 * torch.arange(len(sums), 0, -1, device=flat.device) - 1
    return int((sums * weights).sum()) % 2**64


def _slices(tensors: Mapping[str, Tensor]) -> Iterator[_Slice]:
    begin = 0
    for name, tensor in tensors.items():
        end = begin + tensor.numel() * tensor.element_size()
        dtype = str(tensor.dtype).removeprefix("torch.")
        yield _Slice(name, dtype, tuple(tensor.shape), begin, end)
        begin = end + -end % _ALIGNED
