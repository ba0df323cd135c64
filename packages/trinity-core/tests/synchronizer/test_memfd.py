"""Weights in shared memory: all or none, nobody changes them, and nothing is left behind."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import signal
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from trinity.common.memory import Memory
from trinity.common.ports import WeightSnapshot
from trinity.errors import ModelError
from trinity.synchronizer import ipc_weights, memfd
from trinity.synchronizer.channel import TransferError
from trinity.synchronizer.ipc_weights import IpcStagingBuffer, open_weights
from trinity.synchronizer.memfd import Memfd, machine_id, map_memfd

pytestmark = pytest.mark.skipif(not machine_id(), reason="this system shares no sealed memory")

NOEXEC_SEAL, F_SEAL_EXEC = 0x8, 0x20  # of memfd_create, and what it adds
NUM_FLOATS = 1000  # 4,000 bytes: the next tensor begins at 4,000, which 16 divides


def a_snapshot(version, *, value=1.0):
    tensors = {
        "w": torch.full((NUM_FLOATS,), value),
        "b": torch.tensor([1.5, -2.0, 3.0], dtype=torch.bfloat16),
        "count": torch.tensor(7),
        "none": torch.empty(0, 4),
    }
    return WeightSnapshot(version=version, tensors=tensors)


def answer(pipe):
    """Share what is asked for, in another process, as long as it lives."""
    staging = IpcStagingBuffer()
    while True:
        version = pipe.recv()
        pipe.send(staging.share(a_snapshot(version, value=float(version))))


@pytest.fixture
def trainer():
    """Return a function that lets another process share weights; and that process."""
    context = get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=answer, args=(there,), daemon=True)
    process.start()

    def share(version):
        here.send(version)
        assert here.poll(30)
        return here.recv()

    yield share, process
    process.kill()
    process.join(10)


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join(10)


def holders():
    """Return the shared weights that processes of ours have mapped or open: (process, what)."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_mapped = "memfd:trinity-weights" in (process / "maps").read_text()
            links = list((process / "fd").iterdir())
        except OSError:  # it has ended
            continue
        found += [process.name] * is_mapped
        for link in links:
            with suppress(OSError):  # it is closed by now
                found += [process.name] * ("memfd:trinity-weights" in os.readlink(link))
    return found


def test_another_process_reads_the_weights_where_they_lie(trainer) -> None:
    share, _ = trainer

    snapshot = open_weights(share(3))

    assert snapshot.version == 3
    assert {name: (one.dtype, tuple(one.shape)) for name, one in snapshot.tensors.items()} == {
        "w": (torch.float32, (1000,)),
        "b": (torch.bfloat16, (3,)),
        "count": (torch.int64, ()),
        "none": (torch.float32, (0, 4)),
    }
    assert snapshot.tensors["w"].sum().item() == 3000.0
    assert snapshot.tensors["b"].tolist() == [1.5, -2.0, 3.0]
    assert snapshot.tensors["count"].item() == 7


def test_what_is_shared_next_changes_nothing_for_who_still_reads(trainer) -> None:
    share, _ = trainer
    first, second = open_weights(share(1)), open_weights(share(2))

    assert first.tensors["w"].unique().tolist() == [1.0]
    assert second.tensors["w"].unique().tolist() == [2.0]


def test_nobody_can_write_to_it_nor_make_it_shorter() -> None:
    memory = Memfd(16, [(0, torch.arange(4.0))])
    descriptor = memory.handle.descriptor

    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 8)
    assert memory.mapped().view(torch.float32).tolist() == [0.0, 1.0, 2.0, 3.0]
    memory.close()
    memory.close()


@pytest.mark.parametrize("maps", [Memfd.mapped, lambda memory: map_memfd(memory.handle)])
def test_it_is_mapped_by_a_descriptor_that_cannot_write(maps, monkeypatch) -> None:
    """Linux before 6.7 maps no other where writing is sealed."""
    access, real = [], mmap.mmap

    def noted(descriptor, num_bytes, **how):
        access.append(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE)
        assert how["flags"] == mmap.MAP_SHARED  # to populate would stop all threads of Python
        return real(descriptor, num_bytes, **how)

    memory = Memfd(16, [(0, torch.arange(4.0))])
    monkeypatch.setattr(mmap, "mmap", noted)

    assert maps(memory).view(torch.float32).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert access == [os.O_RDONLY]


@pytest.mark.parametrize("knows_it", [True, False])
def test_memory_that_nobody_can_run_is_taken_and_where_the_kernel_knows_none_the_other(
    knows_it, monkeypatch
) -> None:
    real, asked = os.memfd_create, []
    if knows_it:
        try:
            os.close(real("trinity-probe", NOEXEC_SEAL))
        except OSError:
            pytest.skip("this kernel knows none")

    def create(name, flags):
        asked.append(flags & NOEXEC_SEAL)
        if flags & NOEXEC_SEAL and not knows_it:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(name, flags)

    monkeypatch.setattr(memfd.os, "memfd_create", create)
    memory = Memfd(16, [(0, torch.arange(4.0))])

    seals = fcntl.fcntl(memory.handle.descriptor, fcntl.F_GET_SEALS)
    assert asked == ([NOEXEC_SEAL] if knows_it else [NOEXEC_SEAL, 0])
    assert bool(seals & F_SEAL_EXEC) == knows_it
    assert map_memfd(memory.handle).view(torch.float32).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_weights_that_the_next_have_replaced_are_gone_for_who_comes_late(trainer) -> None:
    share, _ = trainer
    late = share(1)
    share(2)

    with pytest.raises(TransferError, match=r"the shared weights of process \d+ are gone"):
        open_weights(late)


def test_who_has_them_keeps_them_when_the_owner_is_killed_and_who_comes_then_gets_none(
    trainer,
) -> None:
    share, process = trainer
    there = share(5)
    snapshot = open_weights(there)
    kill(process)

    assert snapshot.tensors["w"].unique().tolist() == [5.0]
    with pytest.raises(TransferError, match="are gone: No such file or directory"):
        open_weights(there)


def test_nothing_is_left_when_all_that_had_them_are_gone(trainer) -> None:
    before = set(os.listdir("/dev/shm"))
    share, process = trainer
    snapshot = open_weights(share(1))
    assert str(os.getpid()) in holders()
    assert str(process.pid) in holders()
    assert set(os.listdir("/dev/shm")) == before
    kill(process)
    del snapshot

    assert {str(os.getpid()), str(process.pid)} & set(holders()) == set()


@pytest.mark.parametrize(
    "change",
    [{"inode": 1}, {"descriptor": 0}, {"pid": 2**22 + 1}],
    ids=["inode", "file", "process"],
)
def test_what_stands_there_by_now_is_not_taken_for_them(change) -> None:
    memory = Memfd(16, [(0, torch.arange(4.0))])

    with pytest.raises(TransferError, match="are gone"):
        map_memfd(replace(memory.handle, **change))


def test_memory_that_its_owner_still_writes_is_not_taken() -> None:
    descriptor = os.memfd_create("trinity-weights", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, 16)
        handle = replace(
            Memfd(16, []).handle,
            descriptor=descriptor,
            inode=os.fstat(descriptor).st_ino,
        )
        with pytest.raises(TransferError, match="are gone"):
            map_memfd(handle)
    finally:
        os.close(descriptor)


def test_on_another_machine_one_sentence_says_what_to_set() -> None:
    memory = Memfd(16, [(0, torch.arange(4.0))])

    with pytest.raises(ModelError) as refused:
        map_memfd(replace(memory.handle, machine="another"))

    assert str(refused.value) == (
        "synchronizer.sync_method ipc needs shared memory, but this process is on another "
        "machine or in another container than the trainer. Set memory, gloo or nccl."
    )


def test_without_memory_one_sentence_says_how_much_was_wanted(monkeypatch) -> None:
    def full(descriptor, piece, offset):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(memfd.os, "pwrite", full)

    with pytest.raises(ModelError, match=r"^2 MiB of shared memory .* are not available: No"):
        Memfd(2 << 20, [(0, torch.zeros(1 << 19))])


def test_more_than_is_left_is_refused_before_a_byte_of_it_is_taken(monkeypatch) -> None:
    monkeypatch.setattr(memfd.os, "memfd_create", lambda *_: pytest.fail("some was taken"))
    monkeypatch.setattr(memfd, "memory", lambda: Memory(used=0, limit=2**20))

    with pytest.raises(ModelError) as refused:
        Memfd(2**22, [(0, torch.zeros(2**20))])

    assert str(refused.value) == (
        "4 MiB of shared memory for weights are not available: this machine or container has "
        "1 MiB left. Add memory, or use fewer engines."
    )


@pytest.mark.parametrize("left", [Memory(used=0, limit=2**20), None])
def test_as_much_as_is_left_and_where_nobody_knows_any_is_taken(left, monkeypatch) -> None:
    monkeypatch.setattr(memfd, "memory", lambda: left)

    assert len(Memfd(2**20, []).mapped()) == 2**20


def test_who_was_away_gets_a_copy_of_what_was_shared_last() -> None:
    staging = IpcStagingBuffer()
    assert staging.kept() is None
    for version in (1, 2):
        weight = torch.full((NUM_FLOATS,), float(version))
        staging.share(WeightSnapshot(version=version, tensors={"w": weight}))

    kept = staging.kept()

    assert kept.version == 2
    assert kept.snapshot().tensors["w"].unique().tolist() == [2.0]


def test_after_a_share_that_failed_there_is_no_copy(monkeypatch) -> None:
    staging = IpcStagingBuffer()
    staging.share(a_snapshot(1))

    def failing(*_):
        raise ModelError("no memory")

    monkeypatch.setattr(ipc_weights, "Memfd", failing)
    with pytest.raises(ModelError, match="no memory"):
        staging.share(a_snapshot(2))

    assert staging.kept() is None
