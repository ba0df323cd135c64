"""``trinity.algorithm.kl_fn.kl_fn``: the core's estimates under the published names."""

from __future__ import annotations

from trinity.algorithm.kl_fn import K2KLFn, KLFn, NoKLFn
from trinity_algorithms.kl_estimators import (
    AbsKLFn,
    CorrectedK3KLFn,
    K1KLFn,
    K3KLFn,
    LowVarKLFn,
)

__all__ = ["AbsFn", "CorrectedK3Fn", "DummyKLFn", "K1Fn", "K2Fn", "K3Fn", "KLFn", "LowVarKLFn"]

AbsFn = AbsKLFn
CorrectedK3Fn = CorrectedK3KLFn
DummyKLFn = NoKLFn
K1Fn = K1KLFn
K2Fn = K2KLFn
K3Fn = K3KLFn
