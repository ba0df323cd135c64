"""One process's end of a process group that weights are broadcast in.

It is none of ``torch.distributed``'s default groups: a trainer's ranks, or an engine that spreads
over GPUs, have theirs, and this one is made anew whenever its members change.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import distributed

from trinity.common.out_of_memory import out_of_memory
from trinity.errors import TrinityError
from trinity.synchronizer.staging import checksum, stream_of, views_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from trinity.common.ports import WeightSnapshot
    from trinity.synchronizer.staging import WeightManifest

Backend = Literal["gloo", "nccl"]
CONNECT_S = 120.0  # for NCCL to connect processes that have met
_LOOK_S = 1.0  # at what was left behind
_REMEDIES = (
    "explorer.rollout_model.weight_sync_buffer_size: less than it is (more buckets)",
    "explorer.rollout_model.gpu_memory_utilization: less than it is",
)
_SEAL_BYTES = 16  # checksum and version, at the end of each bucket
_POLL_S = 0.005  # between two looks whether a bucket is there, or all members are


class TransferError(TrinityError):
    """Weights did not arrive whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSpec:
    """How one process joins a group."""

    endpoint: str  # of the rendezvous
    group: str  # its name, which no other group ever had
    rank: int  # 0 sends
    size: int
    backend: Backend
    meet_s: float  # how long one may wait for the others to come
    load_s: float  # until all of them are free to load: replies under way may end first
    timeout_s: float  # how long one may wait for the others then, with each bucket
    bucket_bytes: int  # that travel at once


class Channel:
    """One process's part in a group; bytes go from rank 0 to all others.

    Args:
        spec: how to join.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._changed = threading.Condition()
        self._has_left = False
        self._group: Any = None  # Any: half typed; None: the members have not met
        self._store: Any = None  # Any: half typed; of the members
        self._num_waits = 0  # for all of them

    @property
    def group(self) -> str:
        return self._spec.group

    @property
    def is_on_gpu(self) -> bool:
        return self._spec.backend == "nccl"

    def meet(self, store: Any, *, interface: str = "") -> None:
        """Wait for the other members; :meth:`leave` ends that, too.

        Args:
            store: of ``torch.distributed``, of their rendezvous (Any: half typed).
            interface: ``NCCL_SOCKET_IFNAME``, as an error says it.

        Raises:
            TransferError: somebody did not come, or this process was told to leave.
        """
        spec = self._spec
        own: Any = distributed
        try:
            self._store = own.PrefixStore(spec.group, store)
            self._wait_for_all(spec.meet_s)
            self._group = _group(self._store, spec)
        except RuntimeError as error:
            raise TransferError(
                f"rendezvous of the {spec.size} processes of {spec.group} timed out "
                f"after {spec.meet_s:.0f} s: {_first_line(error)}"
            ) from error
        if self.is_on_gpu:
            self._connect(interface)

    def _connect(self, interface: str) -> None:
        """Let NCCL connect the members by a first broadcast, in a thread of its own.

        NCCL waits for them without a limit, and before they are connected nothing can be aborted.
        An abandoned thread stays with the group, and aborts a broadcast that begins later.

        Raises:
            TransferError: it took too long, or failed, or this process was told to leave.
            Exception: any other of the first broadcast.
        """
        connected: Future[None] = Future()
        with self._travelling(0):
            stream = torch.cuda.current_stream()  # each thread has its own, and its own device

        def connect() -> None:
            try:
                with torch.cuda.stream(stream):
                    self._broadcast(self._empty(0))
                connected.set_result(None)
            except Exception as error:  # noqa: BLE001 -- raised again by who waits
                connected.set_exception(error)

        connected.add_done_callback(self._tell)
        threading.Thread(target=connect, name="weights-connect", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._has_left or connected.done(), CONNECT_S)
        with self._travelling(0):
            if not connected.done():
                self._check_there()
                self.leave()
                raise TransferError(
                    f"NCCL did not connect the {self._spec.size} processes of {self.group} within "
                    f"{CONNECT_S:.0f} s (NCCL_SOCKET_IFNAME is {interface!r}; NCCL_DEBUG=INFO says "
                    f"more)."
                )
            connected.result()

    def _wait_for_all(self, limit_s: float) -> None:
        """Return once all are here, to meet or to load; gloo's own waiting cannot be ended."""
        size, deadline = self._spec.size, time.monotonic() + limit_s
        self._check_there()
        self._num_waits += 1
        what = f"there {self._num_waits}"
        num_there = self._store.add(what, 1)
        while num_there < size:
            with self._changed:
                self._changed.wait_for(lambda: self._has_left, 2 * _POLL_S)
            self._check_there()
            if time.monotonic() > deadline:
                self.leave()
                raise TransferError(
                    f"rendezvous of the {size} processes of {self.group} timed out after "
                    f"{limit_s:.0f} s: {num_there} joined."
                )
            num_there = self._store.add(what, 0)

    def send(self, manifest: WeightManifest, tensors: Mapping[str, Tensor]) -> None:
        """Broadcast these tensors, bucket by bucket.

        Raises:
            TransferError: a member is gone or silent.
        """
        buckets = list(manifest.buckets(self._spec.bucket_bytes))
        size = max((bucket.num_bytes for bucket in buckets), default=0)
        with self._travelling(size):
            self._wait_for_all(self._spec.load_s)
            buffer = self._empty(size)
            for bucket in buckets:
                flat = buffer[: bucket.num_bytes + _SEAL_BYTES]
                for one in bucket.slices:
                    tensor = tensors[one.name].detach().contiguous()
                    flat[one.begin : one.end].copy_(tensor.view(-1).view(torch.uint8))
                _seal(flat).copy_(_seal_of(flat, bucket))
                self._broadcast(flat)

    def receive(self, manifest: WeightManifest) -> WeightSnapshot:
        """Return the weights, which come while they are read: each once, in their order.

        Each bucket is memory of its own, as long as somebody has a tensor of it. Reading them
        raises a ``TransferError`` if a member is gone or silent, or if those that come are not
        those that were announced.
        """
        arriving = self._arriving(manifest)
        return stream_of(manifest, lambda _: next(arriving))

    def _arriving(self, manifest: WeightManifest) -> Iterator[Tensor]:
        with self._travelling(0):
            self._wait_for_all(self._spec.load_s)
        for bucket in manifest.buckets(self._spec.bucket_bytes):
            with self._travelling(bucket.num_bytes):
                flat = self._empty(bucket.num_bytes)
                self._broadcast(flat)
                if not torch.equal(_seal(flat), _seal_of(flat, bucket)):
                    raise TransferError(
                        f"the received weights are not those of policy version {manifest.version}: "
                        f"their checksum differs."
                    )
            yield from views_of(flat, bucket).tensors.values()

    def leave(self) -> None:
        """Leave the group, from another thread too: whoever waits here waits no longer."""
        with self._changed:
            self._has_left = True
            self._changed.notify_all()

    def _empty(self, num_bytes: int) -> Tensor:
        device = "cuda" if self.is_on_gpu else "cpu"
        return torch.empty(num_bytes + _SEAL_BYTES, dtype=torch.uint8, device=device)

    @contextmanager
    def _travelling(self, size: int) -> Iterator[None]:
        """Say what is wrong with a bucket of so many bytes, and leave the group then."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            self.leave()
            phase = f"weight sync (a bucket of {size / 2**20:.0f} MiB)"
            raise out_of_memory(error, phase=phase, remedies=_REMEDIES) from error
        except RuntimeError as error:
            self.leave()
            raise TransferError(f"the broadcast failed: {_first_line(error)}") from error

    def _broadcast(self, travelling: Tensor) -> None:
        self._check_there()
        options = distributed.BroadcastOptions()
        options.rootRank = 0
        options.timeout = limit = timedelta(seconds=self._spec.timeout_s)
        work = self._group.broadcast([travelling], options)
        self._await(work)
        work.wait(limit)

    def _await(self, work: Any) -> None:  # Any: half typed
        """Return when the work is done: with NCCL its future would be once it has begun.

        Raises:
            TransferError: it is not done in time, or this process was told to leave.
        """
        deadline = time.monotonic() + self._spec.timeout_s + _LOOK_S
        work.get_future().add_done_callback(self._tell)
        while not work.is_completed():
            if self._has_left or time.monotonic() > deadline:
                self._has_left = True
                _leave_behind(self._group, work, aborts=self.is_on_gpu)
                raise TransferError("the broadcast failed: a member is gone or unresponsive")
            with self._changed:
                self._changed.wait(_POLL_S)

    def _check_there(self) -> None:
        if self._has_left:
            raise TransferError("this process has left the group.")

    def _tell(self, _: Any) -> None:
        with self._changed:
            self._changed.notify_all()


def _leave_behind(group: Any, work: Any, *, aborts: bool) -> None:  # Any: half typed
    """Keep what a thread of the group still works on; freeing it would wait for that.

    Gloo cannot be told to stop (its ``abort`` does nothing): it ends by its own limit.
    """
    if aborts:
        group.abort()

    def keep() -> None:
        kept = group, work
        while not kept[1].is_completed():
            time.sleep(_LOOK_S)

    threading.Thread(target=keep, name="weights-left-behind", daemon=True).start()


def _seal(flat: Tensor) -> Tensor:
    return flat[-_SEAL_BYTES:].view(torch.int64)


def _seal_of(flat: Tensor, bucket: WeightManifest) -> Tensor:
    """Return what a bucket ends with, by which lost, cut and mixed bytes are seen."""
    return torch.tensor([checksum(flat[:-_SEAL_BYTES]), bucket.version], device=flat.device)


def device_id() -> str:
    """Return which GPU this process computes on; empty: none."""
    if not torch.cuda.is_available():
        return ""
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def _group(store: Any, spec: GroupSpec) -> Any:  # Any: half typed
    own: Any = distributed
    rank, size = spec.rank, spec.size
    if spec.backend == "nccl":
        options = own.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=spec.timeout_s)
        return own.ProcessGroupNCCL(store, rank, size, options)
    return own.ProcessGroupGloo(store, rank, size, timedelta(seconds=spec.meet_s))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
