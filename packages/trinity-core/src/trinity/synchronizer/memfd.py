"""Sealed memory (memfd) that several processes of one machine map, and nobody can change any more.

    owner: Memfd(tensors) -- handle (process, descriptor) --> map_memfd(handle): the same pages

It has no name in any folder, so nothing of it can be left there: the system frees it with the last
process that has it, however that ended. What is mapped stays when the owner closes it or dies.

The system gives out memory that it does not have, and ends a process that writes to it later. So a
process asks before how much is left.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import finalize

from trinity.common.memory import memory
from trinity.errors import ModelError
from trinity.synchronizer.channel import TransferError
from trinity.synchronizer.staging import map_descriptor, write_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

_NAME = "trinity-weights"  # as /proc shows it
_MFD_NOEXEC_SEAL = 0x8  # of Linux 6.3; vm.memfd_noexec may ask for it
_FOREIGN = {errno.EACCES, errno.EPERM}


@dataclass(frozen=True, kw_only=True, slots=True)
class MemfdHandle:
    """Where memory can be had, as long as its owner holds it."""

    machine: str
    pid: int
    descriptor: int
    inode: int  # a descriptor's number is used again
    num_bytes: int


class Memfd:
    """Memory that this process owns.

    Args:
        num_bytes: of it.
        tensors: what to write, and from which byte on; the rest is zero.

    Attributes:
        handle: by which others can map it.
        close: lets go of it; safe to call twice. It stays with who has mapped it.

    Raises:
        ModelError: the system has not as much left.
    """

    def __init__(self, num_bytes: int, tensors: Iterable[tuple[int, Tensor]]) -> None:
        _check_left(num_bytes)
        try:
            descriptor = _created()
        except OSError as error:
            raise _lacking(num_bytes, error) from error
        self.close = finalize(self, os.close, descriptor)
        try:
            os.ftruncate(descriptor, num_bytes)
            for begin, tensor in tensors:
                write_at(descriptor, tensor, begin=begin)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _all_seals())
        except OSError as error:
            self.close()
            raise _lacking(num_bytes, error) from error
        self.handle = MemfdHandle(
            machine=machine_id(),
            pid=os.getpid(),
            descriptor=descriptor,
            inode=os.fstat(descriptor).st_ino,
            num_bytes=num_bytes,
        )

    def mapped(self) -> Tensor:
        """Return its bytes, uint8, which can only be read."""
        # Not by its own descriptor, which may write: Linux before 6.7 maps no such one.
        return map_memfd(self.handle)


def map_memfd(handle: MemfdHandle) -> Tensor:
    """Return the bytes of a process's memory, uint8; to write to them ends this process.

    Raises:
        TransferError: the owner has let go of it, or has ended.
        ModelError: this process cannot have it: it is on another machine, or of another user.
    """
    if handle.machine != machine_id():
        raise ModelError(
            "synchronizer.sync_method ipc needs shared memory, but this process is on another "
            "machine or in another container than the trainer. Set memory, gloo or nccl."
        )
    path = f"/proc/{handle.pid}/fd/{handle.descriptor}"
    try:  # whatever stands there by now: nothing that one waits for
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _FOREIGN:
            raise ModelError(
                f"the shared weights of process {handle.pid} cannot be opened: "
                f"{error.strerror}. Set synchronizer.sync_method: memory."
            ) from error
        raise TransferError(
            f"the shared weights of process {handle.pid} are gone: {error.strerror}."
        ) from error
    try:
        if not _is_that(descriptor, handle):
            raise TransferError(f"the shared weights of process {handle.pid} are gone.")
        return map_descriptor(descriptor, num_bytes=handle.num_bytes)
    finally:
        os.close(descriptor)


def _is_that(descriptor: int, handle: MemfdHandle) -> bool:
    """Return whether this is the memory, whole: its owner seals it last."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_ino != handle.inode:
        return False
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:  # a file
        return False
    return seals & _all_seals() == _all_seals()  # the kernel may add F_SEAL_EXEC


def _created() -> int:
    """Return a descriptor of new memory that nobody can run, where the kernel knows that."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(_NAME, flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # what Linux before 6.3 says
            raise
    return os.memfd_create(_NAME, flags)


def _all_seals() -> int:
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    return seals | fcntl.F_SEAL_SEAL  # so that none is taken back


def _check_left(num_bytes: int) -> None:
    """Compare with what is left: who writes to more is ended by the system.

    Raises:
        ModelError: it is too little.
    """
    now = memory()
    if now is not None and now.left < num_bytes:
        raise ModelError(
            f"{_wanted(num_bytes)} are not available: this machine or container has "
            f"{now.left / 2**20:.0f} MiB left. Add memory, or use fewer engines."
        )


def _lacking(num_bytes: int, error: OSError) -> ModelError:
    return ModelError(
        f"{_wanted(num_bytes)} are not available: {error.strerror}. Set synchronizer.sync_method: "
        f"gloo, which needs no shared memory."
    )


def _wanted(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.0f} MiB of shared memory for weights"


def machine_id() -> str:
    """Return the same text to all processes that can map each other's memory; empty: none can.

    They run under one kernel since its start, and know each other's processes by the same numbers:
    two containers of one machine do not.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return f"{boot} {processes}" if hasattr(os, "memfd_create") else ""
