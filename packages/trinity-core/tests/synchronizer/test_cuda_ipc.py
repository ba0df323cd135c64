"""What is asked of the CUDA runtime where a GPU is shared, with a fake of it."""

from __future__ import annotations

import ctypes
import weakref

import pytest
import torch
from trinity.common.ports import WeightSnapshot
from trinity.common.ports.weights import TensorStream
from trinity.synchronizer import cuda_ipc, ipc_weights
from trinity.synchronizer.channel import TransferError
from trinity.synchronizer.cuda_ipc import CudaRuntime, HandleError
from trinity.synchronizer.ipc_weights import CPU, GPU, IpcStagingBuffer, open_weights
from trinity.synchronizer.memfd import map_memfd

NUM_FLOATS = 1000


class FakeCuda:
    """Memory of the CPU in the GPU's place; a handle says where it is."""

    def __init__(self):
        self.log = []
        self.blocks = {}  # by address
        self.codes = {}  # by function: with what it fails

    def cudaMalloc(self, address, num_bytes):  # noqa: N802
        block = (ctypes.c_ubyte * num_bytes.value)()
        self.blocks[ctypes.addressof(block)] = block
        address._obj.value = ctypes.addressof(block)
        return self._done("malloc", "cudaMalloc")

    def cudaFree(self, address):  # noqa: N802
        del self.blocks[address.value]
        return self._done("free", "cudaFree")

    def cudaIpcGetMemHandle(self, handle, address):  # noqa: N802
        text = str(address.value).encode().ljust(64, b"\0")
        ctypes.memmove(handle, text, 64)
        return self._done("handle", "cudaIpcGetMemHandle")

    def cudaIpcOpenMemHandle(self, address, handle, flags):  # noqa: N802
        assert flags.value == 1
        address._obj.value = int(bytes(handle).rstrip(b"\0"))
        return self._done("open", "cudaIpcOpenMemHandle")

    def cudaIpcCloseMemHandle(self, address):  # noqa: N802
        assert address.value in self.blocks
        return self._done("close", "cudaIpcCloseMemHandle")

    def cudaGetLastError(self):  # noqa: N802
        return 0

    def _done(self, what, function):
        self.log.append(what)
        return self.codes.get(function, 0)


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()

    def tensor_at(address, num_bytes):
        return torch.frombuffer(fake.blocks[address], dtype=torch.uint8)

    monkeypatch.setattr(cuda_ipc, "runtime", lambda: CudaRuntime(fake))
    monkeypatch.setattr(cuda_ipc, "_tensor_at", tensor_at)
    for module in (cuda_ipc, ipc_weights):
        monkeypatch.setattr(module, "device_id", lambda: "GPU-a")
    return fake


def a_snapshot(version, *, num_floats=NUM_FLOATS):
    weight = torch.full((num_floats,), float(version))
    return WeightSnapshot(
        version=version, tensors={"w": weight, "b": torch.ones(3, dtype=torch.bfloat16)}
    )


def test_an_engine_on_that_gpu_has_a_copy_and_closes_what_it_opened(cuda) -> None:
    staging = IpcStagingBuffer()
    there = staging.share(a_snapshot(3), where=[GPU])

    snapshot = open_weights(there)
    staging.share(a_snapshot(4), where=[GPU])

    assert there.memfd is None
    assert snapshot.version == 3
    assert snapshot.tensors["w"].unique().tolist() == [3.0]
    assert snapshot.tensors["b"].tolist() == [1.0, 1.0, 1.0]
    assert cuda.log == ["malloc", "handle", "open", "close"]  # the next ones are written there


def test_who_comes_when_others_are_written_there_takes_nothing(cuda) -> None:
    staging = IpcStagingBuffer()
    late = staging.share(a_snapshot(3), where=[GPU])
    staging.share(a_snapshot(4), where=[GPU])

    with pytest.raises(TransferError, match="have changed"):
        open_weights(late)

    assert cuda.log[-1] == "close"


def test_a_model_of_another_size_gets_other_memory(cuda) -> None:
    staging = IpcStagingBuffer()
    staging.share(a_snapshot(3), where=[GPU])
    larger = staging.share(a_snapshot(4, num_floats=2000), where=[GPU])

    assert open_weights(larger).tensors["w"].shape == (2000,)
    assert cuda.log == ["malloc", "handle", "free", "malloc", "handle", "open", "close"]


def test_an_engine_on_another_gpu_maps_memory_of_the_cpu(cuda, monkeypatch) -> None:
    staging = IpcStagingBuffer()
    there = staging.share(a_snapshot(3), where=[CPU, GPU])
    monkeypatch.setattr(ipc_weights, "device_id", lambda: "GPU-b")

    assert open_weights(there).tensors["w"].unique().tolist() == [3.0]
    assert "open" not in cuda.log


def test_an_engine_that_moved_to_another_gpu_says_so(cuda, monkeypatch) -> None:
    there = IpcStagingBuffer().share(a_snapshot(3), where=[GPU])
    monkeypatch.setattr(ipc_weights, "device_id", lambda: "GPU-b")

    with pytest.raises(TransferError, match="on a GPU that this process does not use"):
        open_weights(there)


def test_who_was_away_gets_a_copy_of_what_the_gpu_has(cuda) -> None:
    staging = IpcStagingBuffer()
    staging.share(a_snapshot(3), where=[CPU])
    staging.share(a_snapshot(4), where=[GPU])

    kept = staging.kept()

    assert kept.version == 4
    assert kept.snapshot().tensors["w"].unique().tolist() == [4.0]


def test_what_cannot_be_opened_is_said_with_the_runtimes_code(cuda) -> None:
    there = IpcStagingBuffer().share(a_snapshot(3), where=[GPU])
    cuda.codes["cudaIpcOpenMemHandle"] = 201

    with pytest.raises(HandleError, match="cudaIpcOpenMemHandle failed with CUDA's error 201"):
        open_weights(there)


def test_where_no_handle_is_made_the_weights_are_on_the_cpu_and_the_gpu_is_free_of_them(
    cuda,
) -> None:
    staging = IpcStagingBuffer()
    cuda.codes["cudaIpcGetMemHandle"] = 801

    there = staging.share(a_snapshot(3), where=[GPU])

    assert there.on_gpu is None
    assert there.refusal == (
        "the GPU's memory cannot be shared: cudaIpcGetMemHandle failed with CUDA's error 801."
    )
    assert open_weights(there).tensors["w"].unique().tolist() == [3.0]
    assert staging.kept().snapshot().tensors["w"].unique().tolist() == [3.0]
    assert cuda.log == ["malloc", "handle", "free"]
    assert cuda.blocks == {}


def test_what_torch_keeps_of_the_gpu_is_given_back_before_engines_copy_weights_there(
    cuda, monkeypatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: cuda.log.append("empty"))
    staging = IpcStagingBuffer()

    for version in (1, 2):
        staging.share(a_snapshot(version), where=[GPU])

    assert cuda.log == ["empty", "malloc", "handle", "empty"]


def test_weights_that_go_by_the_cpu_from_now_on_leave_none_on_the_gpu(cuda) -> None:
    staging = IpcStagingBuffer()
    staging.share(a_snapshot(3), where=[GPU])
    staging.share(a_snapshot(4), where=[CPU])
    staging.share(a_snapshot(5), where=[CPU])

    assert cuda.log == ["malloc", "handle", "free"]
    assert cuda.blocks == {}


def test_a_gpu_without_memory_leaves_the_weights_on_the_cpu(cuda) -> None:
    cuda.codes["cudaMalloc"] = 2

    staging = IpcStagingBuffer()
    there = staging.share(a_snapshot(3, num_floats=2**20), where=[GPU])

    assert there.refusal == (
        "the GPU has no 4 MiB for shared weights: cudaMalloc failed with CUDA's error 2."
    )
    assert open_weights(there).tensors["w"].unique().tolist() == [3.0]


def test_an_engine_without_memory_for_a_copy_says_that_it_needs_another_way(
    cuda, monkeypatch
) -> None:
    there = IpcStagingBuffer().share(a_snapshot(3, num_floats=2**20), where=[GPU])

    def full(address, num_bytes):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(cuda_ipc, "_tensor_at", full)

    with pytest.raises(HandleError, match="the GPU has no 4 MiB for shared weights: torch is out"):
        open_weights(there)

    assert cuda.log[-1] == "close"


def test_who_shares_on_both_holds_no_tensors_beside_the_copies(cuda) -> None:
    made = []

    def make(name):
        assert all(one() is None for one in made[:-1])  # the last is let go of once this is there
        tensor = torch.ones(NUM_FLOATS)
        made.append(weakref.ref(tensor))
        return tensor

    like = {name: torch.empty(NUM_FLOATS, device="meta") for name in "abcd"}
    snapshot = WeightSnapshot(version=3, tensors=TensorStream(like, make))

    staging = IpcStagingBuffer()
    there = staging.share(snapshot, where=[CPU, GPU])

    assert len(made) == 4
    assert map_memfd(there.memfd).view(torch.float32).sum() == 4 * NUM_FLOATS


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_without_a_cuda_runtime_one_sentence_says_so() -> None:
    with pytest.raises(HandleError, match="has no libcudart"):
        cuda_ipc.runtime()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_runtime_gives_memory_and_a_handle_of_it() -> None:
    memory = cuda_ipc.CudaIpcMemory()

    handle = memory.write(4000, [(0, torch.arange(1000.0, device="cuda"))])

    assert len(handle.mem_handle) == 64
    assert memory.flat.view(torch.float32).sum().item() == 499_500.0
