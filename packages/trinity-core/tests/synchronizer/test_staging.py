"""Weights as one run of bytes: the same by name at the other end, and what is not is noticed."""

from __future__ import annotations

import torch
from trinity.common.ports import WeightSnapshot
from trinity.synchronizer.staging import StagingBuffer, checksum, views_of


def weights(scale=1.0):
    return {
        "embed": torch.arange(12.0).reshape(4, 3) * scale,
        "norm": torch.tensor([0.1, -1e-8, 3.0], dtype=torch.bfloat16),
        "one": torch.tensor(7.0, dtype=torch.float64),
        "across": torch.arange(6.0).reshape(2, 3).T,  # not contiguous
        "empty": torch.zeros(0, 5),
    }


def packed(staging, version=4, scale=1.0):
    return staging.pack(WeightSnapshot(version=version, tensors=weights(scale)))


def test_what_is_cut_from_the_bytes_has_names_types_shapes_and_bits_of_what_was_packed() -> None:
    staging = StagingBuffer()
    manifest = packed(staging)

    found = views_of(staging.flat, manifest)

    assert found.version == 4
    assert list(found.tensors) == list(weights())
    for name, tensor in weights().items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)


def test_tensors_begin_at_multiples_of_sixteen_bytes() -> None:
    # 48, 6, 8, 24 and 0 bytes: each begins where the one before ended, rounded up
    assert [place.begin for place in packed(StagingBuffer()).slices] == [0, 48, 64, 80, 112]


def test_the_next_weights_take_the_place_of_the_last_in_the_same_memory() -> None:
    staging = StagingBuffer()
    packed(staging)
    memory = staging.flat.data_ptr()

    manifest = packed(staging, version=5, scale=2.0)

    assert staging.flat.data_ptr() == memory
    assert views_of(staging.flat, manifest).tensors["embed"][0, 1] == 2.0


def test_a_copy_that_was_asked_for_stays_when_the_next_weights_are_packed() -> None:
    staging, tensors = StagingBuffer(), weights()
    assert staging.kept() is None
    del tensors["empty"]
    staging.pack(WeightSnapshot(version=4, tensors=tensors))

    kept = staging.kept()
    packed(staging, version=5, scale=2.0)

    assert kept.version == 4
    assert kept.snapshot().tensors["embed"][0, 1] == 1.0


def test_a_checksum_sees_one_bit_and_blocks_that_changed_places() -> None:
    flat = torch.zeros(3 * 65536 + 16, dtype=torch.uint8)
    flat[5] = flat[2 * 65536] = flat[-1] = 1
    own = checksum(flat)
    turned, swapped = flat.clone(), flat.clone()
    turned[100] = 1
    swapped[:65536], swapped[65536 : 2 * 65536] = flat[65536 : 2 * 65536], flat[:65536]

    assert len({own, checksum(turned), checksum(swapped)}) == 3
    assert checksum(flat.clone()) == own
