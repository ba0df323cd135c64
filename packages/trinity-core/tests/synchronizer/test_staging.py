"""Weights as one run of bytes: the same by name at the other end, and what is not is noticed."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import torch
from trinity.common.memory import Memory
from trinity.common.ports import WeightSnapshot
from trinity.errors import ModelError
from trinity.synchronizer import staging as module
from trinity.synchronizer.staging import StagingBuffer, checksum


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


def test_tensors_begin_at_multiples_of_sixteen_bytes() -> None:
    # 48, 6, 8, 24 and 0 bytes: each begins where the one before ended, rounded up
    assert [place.begin for place in packed(StagingBuffer()).slices] == [0, 48, 64, 80, 112]


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_is_packed_has_names_types_shapes_and_bits_and_changes_with_nothing_later(
    on_disk,
) -> None:
    staging, tensors = StagingBuffer(on_disk=on_disk), weights()
    manifest = staging.pack(WeightSnapshot(version=4, tensors=tensors))
    tensors["embed"].zero_()

    known, packed = staging.packed
    assert known is manifest
    assert packed.keys() == weights().keys()
    for name, tensor in weights().items():
        found = packed[name]
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found, tensor)


def test_a_bucket_holds_whole_tensors_and_a_larger_one_is_alone() -> None:
    manifest = packed(StagingBuffer())

    buckets = list(manifest.buckets(40))

    # 48 bytes alone; 6 and 8 bytes, 16 apart; 24 bytes at 80 would end at 40 after 64: too many
    names = [[one.name for one in bucket.slices] for bucket in buckets]
    assert names == [["embed"], ["norm", "one"], ["across", "empty"]]
    assert [bucket.num_bytes for bucket in buckets] == [48, 32, 32]
    assert [[one.begin for one in bucket.slices] for bucket in buckets] == [[0], [0, 16], [0, 32]]


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_copy_that_was_asked_for_stays_when_the_next_weights_are_packed(on_disk) -> None:
    staging, tensors = StagingBuffer(on_disk=on_disk), weights()
    assert staging.kept() is None
    del tensors["empty"]
    staging.pack(WeightSnapshot(version=4, tensors=tensors))

    kept = staging.kept()
    packed(staging, version=5, scale=2.0)

    assert kept.version == 4
    assert kept.snapshot().tensors["embed"][0, 1] == 1.0


def test_the_next_weights_are_packed_into_the_same_memory_unless_a_copy_was_asked_for() -> None:
    staging, addresses, lent = StagingBuffer(), [], []
    for version in (4, 5, 6):
        staging.pack(WeightSnapshot(version=version, tensors={"one": torch.ones(8)}))
        addresses.append(staging.packed[1]["one"].data_ptr())
        lent += [staging.kept()] if version == 5 else []

    assert addresses[0] == addresses[1] != addresses[2]


NUM_BYTES = 112  # of the weights, of which the last is empty


@pytest.mark.parametrize(
    ("on_disk", "memory_left", "disk_left", "is_file"),
    [
        (None, 8 * NUM_BYTES, 10**6, False),
        (None, 8 * NUM_BYTES - 8, 10**6, True),  # it is larger than an eighth
        (None, 8 * NUM_BYTES - 8, 2 * NUM_BYTES, False),  # the disk is nearly full
        (True, 10**6, NUM_BYTES, True),
        (False, 8, 10**6, False),
    ],
)
def test_a_copy_that_is_large_beside_the_memory_that_is_left_is_a_file(
    monkeypatch, caplog, on_disk, memory_left, disk_left, is_file
) -> None:
    monkeypatch.setattr(module, "memory", lambda: Memory(used=0, limit=memory_left))
    space = SimpleNamespace(free=disk_left)
    monkeypatch.setattr(module, "shutil", SimpleNamespace(disk_usage=lambda _: space))
    staging = StagingBuffer(on_disk=on_disk)
    with caplog.at_level(logging.INFO):
        assert packed(staging).num_bytes == NUM_BYTES

    told = "the copy of the weights for engines that come back is a file in "
    assert (told in caplog.text) == is_file


def test_a_disk_without_space_for_the_copy_is_refused_by_name(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    space = SimpleNamespace(free=5 * 2**20)
    monkeypatch.setattr(module, "shutil", SimpleNamespace(disk_usage=lambda _: space))
    snapshot = WeightSnapshot(version=1, tensors={"w": torch.ones(2**21)})

    with pytest.raises(ModelError) as refused:
        StagingBuffer(on_disk=True).pack(snapshot)

    assert str(refused.value) == (
        f"8 MiB for a copy of the weights do not fit into {tmp_path}: it has 5 MiB left. Let "
        f"TMPDIR name another folder, or set synchronizer.copy_on_disk: false."
    )


@pytest.mark.parametrize("is_there", [False, True], ids=["a new file", "a file that is there"])
def test_a_file_that_cannot_be_written_whole_is_refused_by_name(is_there, full_beyond) -> None:
    staging = StagingBuffer(on_disk=True)
    snapshot = WeightSnapshot(version=1, tensors={"w": torch.ones(2**21)})
    if is_there:
        staging.pack(snapshot)
    refused = pytest.raises(ModelError, match=r"do not fit into .*: File too large\. Let TMPDIR")
    with full_beyond(2**20), refused:
        staging.pack(snapshot)
    assert staging.kept() is None


def test_a_checksum_sees_one_bit_and_blocks_that_changed_places() -> None:
    flat = torch.zeros(3 * 65536 + 16, dtype=torch.uint8)
    flat[5] = flat[2 * 65536] = flat[-1] = 1
    own = checksum(flat)
    turned, swapped = flat.clone(), flat.clone()
    turned[100] = 1
    swapped[:65536], swapped[65536 : 2 * 65536] = flat[65536 : 2 * 65536], flat[:65536]

    assert len({own, checksum(turned), checksum(swapped)}) == 3
    assert checksum(flat.clone()) == own
