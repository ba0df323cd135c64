"""Give a CPU build of PyTorch CUDA devices that are none, and count what a GPU would wait for.

Set ``PRETEND_CUDA=N`` before Python starts: torch loads this package by its entry point
``torch.backends`` at the end of ``import torch``, so that a program's own processes (Ray's workers,
``multiprocessing``) have the devices too. Nothing of the program under test is changed.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
import os
import sys
from types import SimpleNamespace

__all__ = ["Recorder", "autoload", "backend", "install"]

backend = None  # the C++ part, once installed
TOTAL = int(os.environ.get("PRETEND_CUDA_GB", "80")) * 2**30


def autoload() -> None:
    """Be called by torch itself; do nothing unless PRETEND_CUDA says how many devices."""
    count = os.environ.get("PRETEND_CUDA", "")
    if count.isdigit() and int(count) > 0:
        install(int(count))


def _visible(count: int) -> list[int]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return list(range(count))
    return [
        int(word)
        for word in named.split(",")
        if word.strip().lstrip("-").isdigit() and 0 <= int(word) < count
    ]


def install(count: int) -> None:
    """Give this process ``count`` pretend GPUs (those that CUDA_VISIBLE_DEVICES leaves of them)."""
    global backend
    import torch

    if backend is not None:
        return
    visible = _visible(count)
    if not visible:
        return
    backend = importlib.import_module("pretend_cuda._backend")
    backend.start(len(visible))
    _patch_cuda(torch, visible)
    _patch_storage(torch)
    _patch_distributed()
    if limit := os.environ.get(
        "PRETEND_CUDA_LIMIT_MB"
    ):  # out of memory beyond it, as a GPU would be
        backend.set_limit(int(float(limit) * 2**20))
    if folder := os.environ.get("PRETEND_CUDA_REPORT"):
        _report_at_end(folder)


def _patch_cuda(torch, visible) -> None:
    cuda = torch.cuda
    count = len(visible)

    class Stream:
        def __init__(self, device=None, priority=0, **_):
            self.device = torch.device("cuda", _index(device))
            self.device_index, self.device_type, self.stream_id, self.cuda_stream = (
                self.device.index,
                1,
                0,
                0,
            )

        def wait_event(self, event):
            pass

        def wait_stream(self, stream):
            pass

        def record_event(self, event=None):
            return event or Event()

        def synchronize(self):
            backend.tell("synchronize", "Stream.synchronize")

        def query(self):
            return True

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    class Event:
        def __init__(self, enable_timing=False, blocking=False, interprocess=False, **_):
            pass

        def record(self, stream=None):
            pass

        def wait(self, stream=None):
            pass

        def query(self):
            return True

        def synchronize(self):
            backend.tell("synchronize", "Event.synchronize")

        def elapsed_time(self, other):
            return 0.0

    def _index(device=None):
        if device is None:
            return backend.current_device()
        if isinstance(device, int):
            return device if device >= 0 else backend.current_device()
        device = torch.device(device)
        return backend.current_device() if device.index is None else device.index

    def exchange(index):
        old = backend.current_device()
        if index >= 0:
            backend.set_device(index)
        return old

    class Device:
        def __init__(self, device):
            self.idx, self.prev_idx = _index(device), -1

        def __enter__(self):
            self.prev_idx = exchange(self.idx)

        def __exit__(self, *_):
            exchange(self.prev_idx)
            return False

    def properties(device=None):
        index = _index(device)
        return SimpleNamespace(
            name="Pretend GPU",
            major=9,
            minor=0,
            total_memory=TOTAL,
            multi_processor_count=132,
            uuid=f"00000000-0000-0000-0000-{visible[index]:012d}",
            warp_size=32,
            gcnArchName="",
            is_integrated=False,
            max_threads_per_multi_processor=2048,
            regs_per_multiprocessor=65536,
            L2_cache_size=50 * 2**20,
            shared_memory_per_block=49152,
            shared_memory_per_block_optin=232448,
        )

    stream = Stream.__new__(Stream)
    stream.device = torch.device("cuda", 0)
    stream.device_index, stream.device_type, stream.stream_id, stream.cuda_stream = 0, 1, 0, 0

    @contextlib.contextmanager
    def use_stream(_):
        yield

    def synchronize(device=None):
        backend.tell("synchronize", "torch.cuda.synchronize")

    def stats(device=None, **_):
        now, peak = backend.memory(_index(device))
        return {
            "allocated_bytes.all.current": now,
            "allocated_bytes.all.peak": peak,
            "reserved_bytes.all.current": now,
            "reserved_bytes.all.peak": peak,
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }

    def mem_get_info(device=None):
        return TOTAL - backend.memory(_index(device))[0], TOTAL

    cpu_state = torch.get_rng_state

    new = {
        "is_available": lambda: True,
        "device_count": lambda: count,
        "_device_count_nvml": lambda: count,
        "current_device": backend.current_device,
        "set_device": lambda d: exchange(_index(d)) and None,
        "_lazy_init": lambda: None,
        "init": lambda: None,
        "is_initialized": lambda: True,
        "_is_compiled": lambda: True,
        "get_device_properties": properties,
        "get_device_name": lambda d=None: "Pretend GPU",
        "get_device_capability": lambda d=None: (9, 0),
        "mem_get_info": mem_get_info,
        "synchronize": synchronize,
        "empty_cache": lambda: backend.tell("empty_cache", "empty_cache"),
        "ipc_collect": lambda: None,
        "memory_allocated": lambda d=None: backend.memory(_index(d))[0],
        "memory_reserved": lambda d=None: backend.memory(_index(d))[0],
        "max_memory_allocated": lambda d=None: backend.memory(_index(d))[1],
        "max_memory_reserved": lambda d=None: backend.memory(_index(d))[1],
        "reset_peak_memory_stats": lambda d=None: backend.reset_peak(_index(d)),
        "memory_stats": stats,
        "memory_stats_as_nested_dict": lambda d=None: {},
        "Stream": Stream,
        "Event": Event,
        "ExternalStream": Stream,
        "current_stream": lambda d=None: stream,
        "default_stream": lambda d=None: stream,
        "stream": use_stream,
        "set_stream": lambda s: None,
        "device": Device,
        "_exchange_device": exchange,
        "_maybe_exchange_device": exchange,
        "device_of": lambda t: Device(t.device.index if t.is_cuda else None),
        "get_rng_state": lambda d=None: cpu_state(),
        "get_rng_state_all": lambda: [cpu_state() for _ in visible],
        "set_rng_state": lambda s, d=None: None,
        "set_rng_state_all": lambda s: None,
        "manual_seed": lambda s: None,
        "manual_seed_all": lambda s: None,
        "seed": lambda: None,
        "seed_all": lambda: None,
        "initial_seed": lambda: 0,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_current_stream_capturing": lambda: False,
        "can_device_access_peer": lambda a, b: True,
        "get_arch_list": lambda: ["sm_90"],
        "_is_in_bad_fork": lambda: False,
        "_in_bad_fork": False,
        "_sleep": lambda n: None,
    }
    for name, value in new.items():
        setattr(cuda, name, value)
    cuda.memory.empty_cache = new["empty_cache"]
    for name in (
        "memory_allocated",
        "max_memory_allocated",
        "memory_reserved",
        "max_memory_reserved",
        "mem_get_info",
        "memory_stats",
        "reset_peak_memory_stats",
    ):
        setattr(cuda.memory, name, new[name])
    for name in (
        "get_rng_state",
        "get_rng_state_all",
        "set_rng_state",
        "set_rng_state_all",
        "manual_seed",
        "manual_seed_all",
    ):
        setattr(cuda.random, name, new[name])
    torch._C._cuda_getCurrentRawStream = lambda index: 0
    torch.version.cuda = "12.8"
    torch.Tensor.cuda = lambda self, device=None, non_blocking=False, **_: self.to(
        torch.device("cuda", _index(device)), non_blocking=non_blocking
    )


def _patch_storage(torch) -> None:
    """Let storages be resized and moved: torch asks how it was built, and not the device."""
    resize, move = torch.UntypedStorage.resize_, torch.storage._to

    def resize_(self, size):
        if self.device.type != "cuda":
            return resize(self, size)
        backend.resize_storage(self, size)
        return self

    def to(self, device, non_blocking=False):
        device = torch.device(device)
        if device.type != "cuda":
            return move(self, device, non_blocking)
        flat = torch.empty(0, dtype=torch.uint8).set_(self).to(device)
        return flat.untyped_storage()

    torch.UntypedStorage.resize_ = resize_
    torch.storage._to = to


def _patch_distributed() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    import torch.distributed.distributed_c10d as c10d

    class Options:
        def __init__(self, *_, **__):
            (
                self.is_high_priority_stream,
                self._timeout,
                self.global_ranks_in_group,
                self.group_name,
            ) = False, None, [], ""

    class Meta(type):
        def __instancecheck__(cls, value):
            return isinstance(value, backend.PretendNccl)

    class ProcessGroupNCCL(metaclass=Meta):
        """Makes what stands for nccl: gloo over the bytes of the pretend GPUs."""

        def __new__(cls, store, rank, size, options=None):
            from datetime import timedelta

            limit = getattr(options, "_timeout", None) or timedelta(minutes=10)
            return backend.PretendNccl(dist.ProcessGroupGloo(store, rank, size, limit), rank, size)

    ProcessGroupNCCL.Options = Options
    for module in (dist, c10d):
        module.ProcessGroupNCCL = ProcessGroupNCCL
        module.is_nccl_available = lambda: True
    c10d._NCCL_AVAILABLE = True


class Recorder:
    """Count waits, copies and launches between two points, and say which line of which file asked.

    Args:
        under: only frames of files whose path holds this are named.
        launches: also attribute each kernel launch to its line (slow).
    """

    def __init__(self, *, under: str = "trinity", launches: bool = False) -> None:
        self._under, self._launches = under, launches
        self.places: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        self.bytes: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)

    def __enter__(self) -> Recorder:
        backend.reset()
        backend.trace(self._told, self._launches)
        return self

    def __exit__(self, *_) -> None:
        backend.trace(None, False)
        self.events, self.launches, self.num_launches = (
            backend.events(),
            backend.launches(),
            backend.num_launches(),
        )

    def _told(self, kind: str, name: str, num_bytes: int) -> None:
        place = "?"
        frame = sys._getframe(0)
        while frame is not None:
            path = frame.f_code.co_filename
            if self._under in path and "pretend_cuda" not in path and "site-packages" not in path:
                file = os.sep.join(path.split(os.sep)[-2:])
                place = f"{file}:{frame.f_lineno} {frame.f_code.co_name}"
                break
            frame = frame.f_back
        self.places[kind][f"{place}  [{name}]"] += 1
        self.bytes[kind][f"{place}  [{name}]"] += num_bytes

    def table(self, *, per: float = 1.0, top: int = 25) -> str:
        lines = [
            f"launches {self.num_launches / per:.1f}   "
            + "   ".join(
                f"{kind} {number / per:.2f}"
                for kind, number in sorted(self.events.items())
                if not kind.startswith("launch")
            )
        ]
        for kind in sorted(self.places):
            for place, number in self.places[kind].most_common(top):
                size = self.bytes[kind][place] / per
                lines.append(f"  {kind:18s} {number / per:9.2f}  {size:12.0f} B  {place}")
        return "\n".join(lines)


def _report_at_end(folder: str) -> None:
    """Write this process's counts into a folder when it ends."""
    import atexit

    recorder = Recorder()
    recorder.__enter__()

    def write() -> None:
        recorder.__exit__()
        if not recorder.num_launches:
            return
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{os.getpid()}.txt"), "w") as file:
            _, peak = backend.memory(0)
            file.write(f"{' '.join(sys.argv)[:300]}\npeak {peak / 2**20:.1f} MiB\n")
            file.write(f"{recorder.table(top=60)}\n")

    atexit.register(write)
