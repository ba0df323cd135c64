"""The uniform numbers that one sample is drawn with, a function of its key alone."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trinity.common.ports import RunKey, WeightVersion

__all__ = ["sample_uniforms"]

_BITS = 23  # u * total < total holds in float32 for every total: the search never runs off the end


def sample_uniforms(
    key: RunKey, *, sample: int, seed: int, version: WeightVersion, count: int
) -> NDArray[np.float32]:
    """Return ``count`` numbers in [0, 1) for one sample of one request.

    They depend on nothing else, so that neither the other requests of a batch nor the order of
    threads changes what is sampled.
    """
    name = (seed, key.batch, key.task, key.run, key.request, key.attempt, sample, int(version))
    digest = hashlib.sha256(repr(name).encode()).digest()
    generator = np.random.Philox(key=int.from_bytes(digest[:16], "little"))
    raw = generator.random_raw(count) >> np.uint64(64 - _BITS)
    return raw.astype(np.float32) * np.float32(2.0**-_BITS)
