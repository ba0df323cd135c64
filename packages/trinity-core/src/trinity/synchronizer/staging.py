"""Weights as runs of bytes, as they travel in buckets, and what is told of them beside it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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

    def buckets(self, num_bytes: int) -> Iterator[WeightManifest]:
        """Yield parts of at most so many bytes, in order; a larger tensor is one by itself."""
        first = 0
        for number, one in enumerate(self.slices):
            if number > first and one.end - self.slices[first].begin > num_bytes:
                yield self._part(first, number)
                first = number
        if self.slices:
            yield self._part(first, len(self.slices))

    def _part(self, first: int, end: int) -> WeightManifest:
        slices = self.slices[first:end]
        start = slices[0].begin
        own = tuple(replace(one, begin=one.begin - start, end=one.end - start) for one in slices)
        return WeightManifest(version=self.version, slices=own, num_bytes=_whole(own[-1].end))


class StagingBuffer:
    """The weights that were packed last; they stay until the next are packed.

    What is packed is a copy in CPU memory, so the trainer may go on while an engine that was away
    gets it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # who was away asks in another thread
        self._flat: Tensor | None = None  # written again, unless somebody may still read it
        self._is_lent = False
        self._manifest: WeightManifest | None = None  # None: nothing whole was packed

    @property
    def packed(self) -> tuple[WeightManifest, Mapping[str, Tensor]]:
        """Return what was packed last; it is not to be changed."""
        assert self._manifest is not None
        assert self._flat is not None
        return self._manifest, views_of(self._flat, self._manifest).tensors

    def pack(self, snapshot: WeightSnapshot) -> WeightManifest:
        """Copy the weights, in place of those before them, and say what they are."""
        manifest = manifest_of(snapshot)
        with self._lock:
            self._manifest = None
            if self._is_lent or self._flat is None or len(self._flat) != manifest.num_bytes:
                self._flat, self._is_lent = None, False
                self._flat = torch.empty(manifest.num_bytes, dtype=torch.uint8)
            places = views_of(self._flat, manifest).tensors
            for name, tensor in snapshot.tensors.items():
                places[name].copy_(tensor.detach())
            self._manifest = manifest
        return manifest

    def kept(self) -> PackedWeights | None:
        """Return what was packed last, by name, and leave it alone; None: nothing was."""
        with self._lock:
            if self._manifest is None:
                return None
            self._is_lent = True
            tensors = self.packed[1]
            return PackedWeights.of(WeightSnapshot(version=self._manifest.version, tensors=tensors))


def manifest_of(snapshot: WeightSnapshot) -> WeightManifest:
    """Return where each tensor will lie."""
    slices = tuple(_slices(snapshot.like))
    num_bytes = _whole(slices[-1].end) if slices else 0
    return WeightManifest(version=snapshot.version, slices=slices, num_bytes=num_bytes)


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
    words = flat.view(torch.int64)  # which wrap
    rest = len(words) % _BLOCK
    blocks = words[: len(words) - rest].view(-1, _BLOCK).sum(dim=1)
    sums = torch.cat([blocks, words[len(words) - rest :].sum().view(1)])
    weights = 2 * torch.arange(len(sums), 0, -1, device=flat.device) - 1  # odd: none is lost
    return int((sums * weights).sum())


def _slices(tensors: Mapping[str, Tensor]) -> Iterator[_Slice]:
    begin = 0
    for name, tensor in tensors.items():
        end = begin + tensor.numel() * tensor.element_size()
        dtype = str(tensor.dtype).removeprefix("torch.")
        yield _Slice(name, dtype, tuple(tensor.shape), begin, end)
        begin = _whole(end)


def _whole(num_bytes: int) -> int:
    return num_bytes + -num_bytes % _ALIGNED
