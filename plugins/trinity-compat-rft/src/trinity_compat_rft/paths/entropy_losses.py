"""``trinity.algorithm.entropy_loss_fn.entropy_loss_fn``: the core's, under the published names."""

from trinity.algorithm.entropy_loss_fn import (
    DefaultEntropyLossFn,
    EntropyLossFn,
    NoEntropyLossFn,
)
from trinity_algorithms.entropy_loss_fn import MixEntropyLossFn

__all__ = ["DefaultEntropyLossFn", "DummyEntropyLossFn", "EntropyLossFn", "MixEntropyLossFn"]

DummyEntropyLossFn = NoEntropyLossFn
