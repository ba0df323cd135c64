"""Weights as runs of bytes, as they travel in buckets, and what is told of them beside it."""

from __future__ import annotations

import logging
import mmap
import os
import shutil
import tempfile
import threading
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trinity.common.memory import memory
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.common.ports.weights import TensorStream
from trinity.errors import ModelError
from trinity.synchronizer.weights import PackedWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

logger = logging.getLogger(__name__)

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

    What is packed is a copy, so the trainer may go on while an engine that was away gets it: in CPU
    memory, or in a file without a name, of which no process holds more than a tensor.

    Args:
        on_disk: the copy is in a file; None: if it is more than an eighth of the memory left.
    """

    def __init__(self, *, on_disk: bool | None = False) -> None:
        self._lock = threading.Lock()  # who was away asks in another thread
        self._on_disk = on_disk
        self._copy: Any = None  # a tensor or a file: written again, unless it may still be read
        self._is_lent = False
        self._num_bytes = -1  # of the copy
        self._manifest: WeightManifest | None = None  # None: nothing whole was packed

    @property
    def packed(self) -> tuple[WeightManifest, Mapping[str, Tensor]]:
        """Return what was packed last, to be read in order; it is not to be changed."""
        assert self._manifest is not None
        slices = iter(self._manifest.slices)
        stream = stream_of(self._manifest, lambda _: _view(self._flat(), next(slices)))
        return self._manifest, stream.tensors

    def pack(self, snapshot: WeightSnapshot) -> WeightManifest:
        """Copy the weights, in place of those before them, and say what they are.

        Raises:
            ModelError: the disk has no space for them, or does not take them.
        """
        manifest = manifest_of(snapshot)
        with self._lock:
            self._manifest = None
            if self._is_lent or self._num_bytes != manifest.num_bytes:
                self._copy, self._num_bytes, self._is_lent = None, -1, False
                self._copy = self._place(manifest.num_bytes)
                self._num_bytes = manifest.num_bytes
            for one in manifest.slices:
                tensor = snapshot.tensors[one.name].detach()
                if isinstance(self._copy, Tensor):
                    _view(self._copy, one).copy_(tensor)
                    continue
                try:
                    write_at(self._copy.fileno(), tensor, begin=one.begin)
                except OSError as error:  # it is full meanwhile, or a limit of files is passed
                    raise _no_copy(manifest.num_bytes, error.strerror) from error
            self._manifest = manifest
        return manifest

    def kept(self) -> PackedWeights | None:
        """Return what was packed last, by name, and leave it alone; None: nothing was."""
        with self._lock:
            if self._manifest is None:
                return None
            self._is_lent = True
            return PackedWeights.of(views_of(self._flat(), self._manifest))

    def _place(self, num_bytes: int) -> Any:
        on_disk, now = self._on_disk, memory()
        free = 0 if on_disk is False else shutil.disk_usage(tempfile.gettempdir()).free
        if on_disk is None and now is not None:
            on_disk = num_bytes > now.left // 8 and free > 2 * num_bytes
        if not on_disk:
            return torch.empty(num_bytes, dtype=torch.uint8)
        if free < num_bytes:
            raise _no_copy(num_bytes, f"it has {free / 2**20:.0f} MiB left")
        try:
            file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 -- closed with this
            file.truncate(num_bytes)
        except OSError as error:
            raise _no_copy(num_bytes, error.strerror) from error
        logger.info(
            "the copy of the weights for engines that come back is a file in %s",
            tempfile.gettempdir(),
        )
        return file

    def _flat(self) -> Tensor:
        if isinstance(self._copy, Tensor):
            return self._copy
        # Mapped anew: a page that nobody has any more is the system's.
        return map_descriptor(self._copy.fileno(), num_bytes=self._num_bytes)


def _no_copy(num_bytes: int, why: str) -> ModelError:
    return ModelError(
        f"{num_bytes / 2**20:.0f} MiB for a copy of the weights do not fit into "
        f"{tempfile.gettempdir()}: {why}. Let TMPDIR name another folder, or set "
        f"synchronizer.copy_on_disk: false."
    )


def manifest_of(snapshot: WeightSnapshot) -> WeightManifest:
    """Return where each tensor will lie."""
    slices = tuple(_slices(snapshot.like))
    num_bytes = _whole(slices[-1].end) if slices else 0
    return WeightManifest(version=snapshot.version, slices=slices, num_bytes=num_bytes)


def views_of(flat: Tensor, manifest: WeightManifest) -> WeightSnapshot:
    """Return the weights by name, as views of these bytes."""
    tensors = {one.name: _view(flat, one) for one in manifest.slices}
    return WeightSnapshot(version=manifest.version, tensors=tensors)


def stream_of(manifest: WeightManifest, make: Callable[[str], Tensor]) -> WeightSnapshot:
    """Return the weights that a manifest tells of, each made by its name when it is read."""
    like = views_of(torch.empty(manifest.num_bytes, dtype=torch.uint8, device="meta"), manifest)
    return replace(like, tensors=TensorStream(like.tensors, make))


def _view(flat: Tensor, one: _Slice) -> Tensor:
    return flat[one.begin : one.end].view(getattr(torch, one.dtype)).view(one.shape)


def write_at(descriptor: int, tensor: Tensor, *, begin: int) -> None:
    """Write a tensor's bytes into an open file, from this byte on."""
    left = memoryview(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    while left:
        num_written = os.pwrite(descriptor, left, begin)
        begin, left = begin + num_written, left[num_written:]


def map_descriptor(descriptor: int, *, num_bytes: int) -> Tensor:
    """Return the bytes of an open file, uint8, only to be read; they stay when it is closed."""
    if num_bytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    # Not populated: that would hold Python's lock for half a second per GiB, and stop the beats.
    pages = mmap.mmap(descriptor, num_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    with warnings.catch_warnings():  # torch has no tensors that cannot be written to
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(pages, dtype=torch.uint8)  # keeps the pages as long as it is there


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
