"""Memory of one GPU that processes hand each other by the CUDA runtime's handles.

    owner: CudaIpcMemory.write(...) -- handle (of a device) --> copied(handle): a copy on that GPU

The runtime is called by itself: torch's own handles count their users in files below ``/dev/shm``,
which a ``kill -9`` leaves there. The owner writes the next weights to the same memory, as to free
it while another process has it open is undefined; so who gets a handle copies what is there,
compares the copy with the checksum that was told, and closes it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trinity.synchronizer.channel import TransferError, device_id
from trinity.synchronizer.staging import checksum

if TYPE_CHECKING:
    from collections.abc import Iterable

_PEER_ACCESS = 1  # cudaIpcMemLazyEnablePeerAccess, the one flag that there is


class HandleError(TransferError):
    """Processes here hand each other no memory of a GPU: WSL or MIG forbids it, or it is full."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaIpcHandle:
    """Where memory can be had, as long as its owner lives and writes no others to it."""

    device: str  # as channel.device_id gives it
    mem_handle: bytes
    num_bytes: int
    checksum: int


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


class CudaRuntime:
    """The calls of ``libcudart`` that memory is handed over by.

    Args:
        library: the loaded one.
    """

    def __init__(self, library: Any) -> None:  # Any: its functions are found by name
        self._library = library

    def allocate(self, num_bytes: int) -> int:
        """Return the address of memory on the current GPU."""
        address = ctypes.c_void_p()
        self._call("cudaMalloc", ctypes.byref(address), ctypes.c_size_t(num_bytes))
        return address.value or 0

    def free(self, address: int) -> None:
        self._call("cudaFree", ctypes.c_void_p(address))

    def handle_of(self, address: int) -> bytes:
        """Return what another process opens allocated memory by."""
        handle = _Handle()
        self._call("cudaIpcGetMemHandle", ctypes.byref(handle), ctypes.c_void_p(address))
        return bytes(handle)

    def open(self, handle: bytes) -> int:
        """Return the address of another process's memory in this one."""
        address = ctypes.c_void_p()
        own = _Handle.from_buffer_copy(handle)
        self._call("cudaIpcOpenMemHandle", ctypes.byref(address), own, ctypes.c_uint(_PEER_ACCESS))
        return address.value or 0

    def close(self, address: int) -> None:
        self._call("cudaIpcCloseMemHandle", ctypes.c_void_p(address))

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            getattr(self._library, "cudaGetLastError")()  # noqa: B009 -- so that torch finds none
            raise OSError(code, f"{name} failed with CUDA's error {code}")


class CudaIpcMemory:
    """Memory that this process owns on its GPU, for weights of one size."""

    def __init__(self) -> None:
        self._address = 0  # 0: there is none
        self._flat = torch.empty(0, dtype=torch.uint8)
        self._handle = b""

    @property
    def flat(self) -> Tensor:
        return self._flat

    def write(self, num_bytes: int, tensors: Iterable[tuple[int, Tensor]]) -> CudaIpcHandle:
        """Write them, in place of those before, and say where they are.

        Args:
            num_bytes: of all.
            tensors: what to write, and from which byte on.

        Raises:
            HandleError: no other process can have them there, or there is no memory for them.
        """
        empty_cache()  # what torch keeps from a train step, others need now
        self._take(num_bytes)
        for begin, tensor in tensors:
            flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
            self._flat[begin : begin + len(flat)].copy_(flat)
        told = checksum(self._flat)  # waits until all is written
        return CudaIpcHandle(
            device=device_id(), mem_handle=self._handle, num_bytes=num_bytes, checksum=told
        )

    def free(self) -> None:
        self._flat = torch.empty(0, dtype=torch.uint8)
        address, self._address = self._address, 0
        if address:
            runtime().free(address)

    def _take(self, num_bytes: int) -> None:
        if self._address and len(self._flat) == num_bytes:
            return
        self.free()
        cuda = runtime()
        try:
            address = cuda.allocate(num_bytes)
        except OSError as error:
            raise _no_memory(num_bytes, error.strerror) from error
        try:
            self._handle = cuda.handle_of(address)
        except OSError as error:
            cuda.free(address)
            raise HandleError(f"the GPU's memory cannot be shared: {error.strerror}.") from error
        self._address, self._flat = address, _tensor_at(address, num_bytes)
        self._flat.zero_()


def copied(handle: CudaIpcHandle) -> Tensor:
    """Return a copy of another process's memory, uint8, on the same GPU.

    Raises:
        TransferError: the owner writes others to it.
        HandleError: it cannot be opened, the owner is gone, or there is no memory for a copy.
    """
    try:
        address = runtime().open(handle.mem_handle)
    except OSError as error:
        raise HandleError(
            f"the shared weights on the GPU cannot be opened: {error.strerror}."
        ) from error
    try:
        flat = _tensor_at(address, handle.num_bytes).clone()
        found = checksum(flat)  # waits until all is copied
    except torch.OutOfMemoryError as error:
        raise _no_memory(handle.num_bytes, "torch is out of memory") from error
    finally:
        runtime().close(address)
    if found != handle.checksum:
        raise TransferError("the shared weights on the GPU have changed (checksum).")
    return flat


@cache
def runtime() -> CudaRuntime:
    """Return the runtime that torch has loaded.

    Raises:
        HandleError: it has none of its own.
    """
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in lines if "/libcudart" in line}
    if not paths:
        raise HandleError("this build of torch has no libcudart, which CUDA IPC needs.")
    return CudaRuntime(ctypes.CDLL(min(paths)))


def _no_memory(num_bytes: int, why: str | None) -> HandleError:
    return HandleError(f"the GPU has no {num_bytes / 2**20:.0f} MiB for shared weights: {why}.")


def empty_cache() -> None:
    """Give the GPU back what torch keeps of memory that nothing is in."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class _Interface:
    """Memory of a GPU as torch takes it over without a copy."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _tensor_at(address: int, num_bytes: int) -> Tensor:
    return torch.as_tensor(_Interface(address, num_bytes), device="cuda")
