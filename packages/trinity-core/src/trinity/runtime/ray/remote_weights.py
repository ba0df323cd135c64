"""Weights by reference: whoever passes them on does not hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import ray

from trinity.common.ports import WeightSnapshot, WeightVersion

if TYPE_CHECKING:
    from torch import Tensor

    from trinity.synchronizer.weights import PackedWeights

FETCHED_S = 600.0  # so long weights may take from the object store of another machine


class RemoteTensors(Mapping[str, "Tensor"]):
    """The tensors behind a reference, fetched when one of them is asked for."""

    def __init__(self, ref: ray.ObjectRef[PackedWeights]) -> None:
        self.ref = ref

    def __getitem__(self, name: str) -> Tensor:
        return self._fetched[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fetched)

    def __len__(self) -> int:
        return len(self._fetched)

    @cached_property
    def _fetched(self) -> Mapping[str, Tensor]:
        packed: PackedWeights = ray.get(self.ref, timeout=FETCHED_S)
        return packed.snapshot().tensors


def snapshot_of(version: WeightVersion, ref: ray.ObjectRef[PackedWeights]) -> WeightSnapshot:
    """Return a snapshot whose tensors stay where they are."""
    return WeightSnapshot(version=version, tensors=RemoteTensors(ref))
