"""Weights that lie where the processes of one machine can have them, as the trainer's one sees it.

What CPUs share is never changed: the next weights go into memory of their own. So an engine may
take its time, and whoever has mapped one version has all of it and nothing else. Memory is held
twice only while somebody still reads the version before. What a GPU shares each engine there
copies.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.synchronizer.channel import TransferError, device_id
from trinity.synchronizer.cuda_ipc import CudaIpcHandle, CudaIpcMemory, HandleError, copied
from trinity.synchronizer.memfd import Memfd, MemfdHandle, map_memfd
from trinity.synchronizer.staging import manifest_of, views_of
from trinity.synchronizer.weights import PackedWeights

if TYPE_CHECKING:
    from collections.abc import Collection

    from trinity.common.ports import WeightSnapshot
    from trinity.synchronizer.staging import WeightManifest

CPU, GPU = "cpu", "gpu"  # where weights can be shared


@dataclass(frozen=True, kw_only=True, slots=True)
class IpcWeights:
    """What weights are, and where they can be had."""

    manifest: WeightManifest
    memfd: MemfdHandle | None = None
    on_gpu: CudaIpcHandle | None = None
    refusal: str = ""  # why they are not on the GPU, though they were wanted there


class IpcStagingBuffer:
    """The weights that were shared last; they can be had until the next are shared."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # who was away asks in another thread
        self._manifest: WeightManifest | None = None  # None: nothing whole was shared
        self._memfd: Memfd | None = None  # None: the GPU has it
        self._gpu = CudaIpcMemory()

    def share(self, snapshot: WeightSnapshot, *, where: Collection[str] = (CPU,)) -> IpcWeights:
        """Copy the weights, let go of those before them, and say where they are.

        Args:
            snapshot: of the trainer.
            where: ``CPU``, ``GPU`` or both; where a GPU's memory cannot be shared, it is the CPU's.

        Raises:
            ModelError: there is no memory for them.
        """
        manifest = manifest_of(snapshot)
        parts = ((one.begin, snapshot.tensors[one.name]) for one in manifest.slices)
        memfd, on_gpu, refusal = None, None, ""
        with self._lock:
            self._manifest = None
            if self._memfd is not None:
                self._memfd.close()
                self._memfd = None
            if GPU in where:
                try:
                    on_gpu = self._gpu.write(manifest.num_bytes, parts)
                    flat = self._gpu.flat  # each of the snapshot's is read once
                    parts = ((one.begin, flat[one.begin : one.end]) for one in manifest.slices)
                except HandleError as error:
                    refusal = str(error)
            else:
                self._gpu.free()
            if CPU in where or refusal:
                self._memfd = Memfd(manifest.num_bytes, parts)
                memfd = self._memfd.handle
            self._manifest = manifest
        return IpcWeights(manifest=manifest, memfd=memfd, on_gpu=on_gpu, refusal=refusal)

    def kept(self) -> PackedWeights | None:
        """Return what was shared last, by name; None: nothing was."""
        with self._lock:
            if self._manifest is None:
                return None
            flat = self._gpu.flat.cpu() if self._memfd is None else self._memfd.mapped()
            return PackedWeights.of(views_of(flat, self._manifest))


def open_weights(shared: IpcWeights) -> WeightSnapshot:
    """Return the weights in the process of a receiver: only to be read, as they may be shared.

    Raises:
        TransferError: they are not there any more, or on a GPU that is not this process's.
        ModelError: this process cannot have them.
    """
    on_gpu, memfd = shared.on_gpu, shared.memfd
    if on_gpu is not None and on_gpu.device == device_id():
        return views_of(copied(on_gpu), shared.manifest)
    if memfd is None:
        raise TransferError("the shared weights are on a GPU that this process does not use.")
    return views_of(map_memfd(memfd), shared.manifest)
