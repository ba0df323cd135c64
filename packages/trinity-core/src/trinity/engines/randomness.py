"""The uniform numbers that samples are drawn with, a function of each sample's key alone.

Philox (Salmon et al., 2011) with the hash of the key: numpy's for one sample, and the same for many
samples at once, where building a generator for each would cost more than its numbers.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from trinity.common.ports import RunKey, WeightVersion

_BITS = 23  # u * total < total holds in float32 for every total: the search never runs off the end
_FEW = 16  # samples; from here on, all at once is faster
_MANY = 4096  # numbers; from here on, one sample after the other is as fast and takes less memory
_ROUNDS = 10
_FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def uniforms_of(
    samples: Sequence[tuple[RunKey, int]],
    *,
    seed: int,
    version: WeightVersion,
    counts: Sequence[int],
) -> list[list[float]]:
    """Return for each (key, sample) as many numbers as ``counts`` says; as `sample_uniforms`."""
    if len(samples) < _FEW or max(counts) > _MANY:
        return [
            sample_uniforms(key, sample=sample, seed=seed, version=version, count=count).tolist()
            for (key, sample), count in zip(samples, counts, strict=True)
        ]
    digests = b"".join(_digest(key, sample, seed, version) for key, sample in samples)
    keys_R2 = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)
    rows = _uniform(_philox(keys_R2, num_blocks=-(-max(counts) // 4))).tolist()
    return [row[:count] for row, count in zip(rows, counts, strict=True)]


def sample_uniforms(
    key: RunKey, *, sample: int, seed: int, version: WeightVersion, count: int
) -> NDArray[np.float32]:
    """Return ``count`` numbers in [0, 1) for one sample of one request.

    They depend on nothing else, so that neither the other requests of a batch nor the order of
    threads changes what is sampled.
    """
    digest = _digest(key, sample, seed, version)
    generator = np.random.Philox(key=int.from_bytes(digest, "little"))
    return _uniform(generator.random_raw(count))


def _digest(key: RunKey, sample: int, seed: int, version: WeightVersion) -> bytes:
    name = (seed, key.batch, key.task, key.run, key.request, key.attempt, sample, int(version))
    return hashlib.sha256(repr(name).encode()).digest()[:16]


def _uniform(raw: NDArray[np.uint64]) -> NDArray[np.float32]:
    return (raw >> np.uint64(64 - _BITS)).astype(np.float32) * np.float32(2.0**-_BITS)


def _philox(keys_R2: NDArray[np.uint64], *, num_blocks: int) -> NDArray[np.uint64]:
    """Return the first ``num_blocks`` blocks of four numbers for each key, ``[R, 4 * blocks]``."""
    shape = (len(keys_R2), num_blocks)
    zeros = np.zeros(shape, dtype=np.uint64)
    one = np.broadcast_to(np.arange(1, num_blocks + 1, dtype=np.uint64), shape)
    state = (one, zeros, zeros, zeros)
    for turn in range(_ROUNDS):
        first, second = (
            keys_R2[:, i, None] + np.uint64(turn * _STEPS[i] % 2**64) for i in range(2)
        )
        high0, low0 = _product(_FACTORS[0], state[0])
        high1, low1 = _product(_FACTORS[1], state[2])
        state = (high1 ^ state[1] ^ first, low1, high0 ^ state[3] ^ second, low0)
    return np.stack(state, axis=-1).reshape(len(keys_R2), -1)


def _product(
    factor: int, numbers: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the upper and the lower 64 bits of a product."""
    a_high, a_low = np.uint64(factor >> 32), np.uint64(factor & 0xFFFFFFFF)
    b_high, b_low = numbers >> _HALF, numbers & _LOW
    low_low, high_low = a_low * b_low, a_high * b_low
    middle = (low_low >> _HALF) + (high_low & _LOW) + a_low * b_high  # below 2**64
    upper = a_high * b_high + (high_low >> _HALF) + (middle >> _HALF)
    return upper, np.uint64(factor) * numbers
