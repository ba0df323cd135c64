"""Weights that lie where the processes of one machine can have them, as the trainer's one sees it.

What is shared is never changed: the next weights go into memory of their own. So an engine may take
its time, and whoever has mapped one version has all of it and nothing else. Memory is held twice
only while somebody still reads the version before.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.synchronizer.sealed import SealedMemory, SealedPlace, mapped
from trinity.synchronizer.shipment import cut, shipment_of
from trinity.synchronizer.weights import PackedWeights

if TYPE_CHECKING:
    from trinity.common.ports import WeightSnapshot
    from trinity.synchronizer.shipment import Shipment

__all__ = ["Shared", "SharedOutbox", "received"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """What weights are, and where they can be had."""

    shipment: Shipment
    sealed: SealedPlace


class SharedOutbox:
    """The weights that were shared last; they can be had until the next are shared."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # who was away asks in another thread
        self._shipment: Shipment | None = None  # None: nothing whole was shared
        self._sealed: SealedMemory | None = None

    def share(self, snapshot: WeightSnapshot) -> Shared:
        """Copy the weights, let go of those before them, and say where they are.

        Raises:
            ModelError: there is no memory for them.
        """
        shipment = shipment_of(snapshot)
        parts = ((place.begin, snapshot.tensors[place.name]) for place in shipment.places)
        with self._lock:
            self._shipment = None
            if self._sealed is not None:
                self._sealed.close()
            self._sealed = SealedMemory(shipment.num_bytes, parts)
            self._shipment = shipment
            return Shared(shipment=shipment, sealed=self._sealed.place)

    def kept(self) -> PackedWeights | None:
        """Return what was shared last, by name; None: nothing was."""
        with self._lock:
            if self._shipment is None or self._sealed is None:
                return None
            return PackedWeights.of(cut(self._sealed.mapped(), self._shipment))


def received(shared: Shared) -> WeightSnapshot:
    """Return the weights in the process of a receiver: views of shared memory, only to be read.

    Raises:
        BrokenOffError: they are not there any more.
        ModelError: this process cannot have them.
    """
    return cut(mapped(shared.sealed), shared.shipment)
