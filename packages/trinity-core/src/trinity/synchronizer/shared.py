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

from trinity.synchronizer.channel import BrokenOffError, device_id
from trinity.synchronizer.gpu_memory import GpuMemory, GpuPlace, HandleError, copied
from trinity.synchronizer.sealed import SealedMemory, SealedPlace, mapped
from trinity.synchronizer.shipment import cut, shipment_of
from trinity.synchronizer.weights import PackedWeights

if TYPE_CHECKING:
    from collections.abc import Collection

    from trinity.common.ports import WeightSnapshot
    from trinity.synchronizer.shipment import Shipment

CPU, GPU = "cpu", "gpu"  # where weights can be shared


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """What weights are, and where they can be had."""

    shipment: Shipment
    sealed: SealedPlace | None = None
    on_gpu: GpuPlace | None = None
    refusal: str = ""  # why they are not on the GPU, though they were wanted there


class SharedOutbox:
    """The weights that were shared last; they can be had until the next are shared."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # who was away asks in another thread
        self._shipment: Shipment | None = None  # None: nothing whole was shared
        self._sealed: SealedMemory | None = None  # None: the GPU has it
        self._gpu = GpuMemory()

    def share(self, snapshot: WeightSnapshot, *, where: Collection[str] = (CPU,)) -> Shared:
        """Copy the weights, let go of those before them, and say where they are.

        Args:
            snapshot: of the trainer.
            where: ``CPU``, ``GPU`` or both; where a GPU's memory cannot be shared, it is the CPU's.

        Raises:
            ModelError: there is no memory for them.
        """
        shipment = shipment_of(snapshot)
        parts = [(place.begin, snapshot.tensors[place.name]) for place in shipment.places]
        sealed, on_gpu, refusal = None, None, ""
        with self._lock:
            self._shipment = None
            if self._sealed is not None:
                self._sealed.close()
                self._sealed = None
            if GPU in where:
                try:
                    on_gpu = self._gpu.write(shipment.num_bytes, parts)
                except HandleError as error:
                    refusal = str(error)
            else:
                self._gpu.free()
            if CPU in where or refusal:
                self._sealed = SealedMemory(shipment.num_bytes, parts)
                sealed = self._sealed.place
            self._shipment = shipment
        return Shared(shipment=shipment, sealed=sealed, on_gpu=on_gpu, refusal=refusal)

    def kept(self) -> PackedWeights | None:
        """Return what was shared last, by name; None: nothing was."""
        with self._lock:
            if self._shipment is None:
                return None
            flat = self._gpu.flat.cpu() if self._sealed is None else self._sealed.mapped()
            return PackedWeights.of(cut(flat, self._shipment))


def received(shared: Shared) -> WeightSnapshot:
    """Return the weights in the process of a receiver: only to be read, as they may be shared.

    Raises:
        BrokenOffError: they are not there any more, or on a GPU that is not this process's.
        ModelError: this process cannot have them.
    """
    on_gpu, sealed = shared.on_gpu, shared.sealed
    if on_gpu is not None and on_gpu.device == device_id():
        return cut(copied(on_gpu), shared.shipment)
    if sealed is None:
        raise BrokenOffError("the weights were shared on a GPU that this process does not use.")
    return cut(mapped(sealed), shared.shipment)
