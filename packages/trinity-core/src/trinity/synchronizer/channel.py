"""One process's end of a process group that weights are broadcast in.

It is none of ``torch.distributed``'s default groups: a trainer's ranks, or an engine that spreads
over GPUs, have theirs, and this one is made anew whenever its members change.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import distributed

from trinity.common.out_of_memory import out_of_memory
from trinity.errors import TrinityError
from trinity.synchronizer.staging import checksum, views_of

if TYPE_CHECKING:
    from torch import Tensor

    from trinity.common.ports import WeightSnapshot
    from trinity.synchronizer.staging import WeightManifest

Backend = Literal["gloo", "nccl"]
_LOOK_S = 1.0  # at what was left behind
_REMEDIES = (
    "explorer.rollout_model.weight_sync_buffer_size: less than it is (more buckets)",
    "explorer.rollout_model.gpu_memory_utilization: less than it is",
)
_POLL_S = 0.005  # between two looks whether a bucket is there, or all members are


class TransferError(TrinityError):
    """Weights did not arrive whole; those that a process had are as they were."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSpec:
    """How one process joins a group."""

    endpoint: str  # of the rendezvous
    group: str  # its name, which no other group ever had
    rank: int  # 0 sends
    size: int
    backend: Backend
    meet_s: float  # how long one may wait for the others to come
    timeout_s: float  # how long one may wait for the others later, with each bucket
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

    @property
    def group(self) -> str:
        """Return the name of the group."""
        return self._spec.group

    def meet(self, store: Any) -> None:
        """Wait for the other members; :meth:`leave` ends that, too.

        Args:
            store: of ``torch.distributed``, of their rendezvous (Any: half typed).

        Raises:
            TransferError: somebody did not come, or this process was told to leave.
        """
        spec = self._spec
        own: Any = distributed
        try:
            own_store = own.PrefixStore(spec.group, store)
            self._wait_for_all(own_store)
            self._group = _group(own_store, spec)
        except RuntimeError as error:
            raise TransferError(
                f"rendezvous of the {spec.size} processes of {spec.group} timed out "
                f"after {spec.meet_s:.0f} s: {_first_line(error)}"
            ) from error

    def _wait_for_all(self, store: Any) -> None:
        """Return once all members are at the store: gloo's own waiting cannot be told to end."""
        size, limit_s = self._spec.size, self._spec.meet_s
        deadline = time.monotonic() + limit_s
        self._check_there()
        num_there = store.add("there", 1)
        while num_there < size:
            with self._changed:
                self._changed.wait_for(lambda: self._has_left, 10 * _POLL_S)
            self._check_there()
            if time.monotonic() > deadline:
                raise TransferError(
                    f"rendezvous of the {size} processes of {self.group} timed out after "
                    f"{limit_s:.0f} s: {num_there} joined."
                )
            num_there = store.add("there", 0)

    def send(self, flat: Tensor) -> None:
        """Broadcast these bytes.

        Raises:
            TransferError: a member is gone or silent.
        """
        self._broadcast(flat)

    def receive(self, manifest: WeightManifest) -> WeightSnapshot:
        """Return the weights, once all of them are here and are those that were announced.

        Raises:
            TransferError: they are not, or a member is gone or silent.
        """
        flat = torch.empty(manifest.num_bytes, dtype=torch.uint8)
        self._broadcast(flat)
        if checksum(flat) != manifest.checksum:
            raise TransferError(
                f"the received weights are not those of policy version {manifest.version}: "
                f"their checksum differs."
            )
        return views_of(flat, manifest)

    def leave(self) -> None:
        """Leave the group, from another thread too: whoever waits here waits no longer."""
        with self._changed:
            self._has_left = True
            self._changed.notify_all()

    def _broadcast(self, flat: Tensor) -> None:
        size = min(self._spec.bucket_bytes, len(flat))
        on_gpu = self._spec.backend == "nccl"
        try:
            # Its own memory: a bucket that is left behind keeps no more than itself.
            buffer = torch.empty(size, dtype=torch.uint8, device="cuda" if on_gpu else "cpu")
            for begin in range(0, len(flat), size or 1):
                self._broadcast_one(flat[begin : begin + size], buffer=buffer)
        except torch.OutOfMemoryError as error:
            self.leave()
            phase = f"weight sync (a bucket of {size / 2**20:.0f} MiB)"
            raise out_of_memory(error, phase=phase, remedies=_REMEDIES) from error
        except RuntimeError as error:
            self.leave()
            raise TransferError(f"the broadcast failed: {_first_line(error)}") from error

    def _broadcast_one(self, bucket: Tensor, *, buffer: Tensor) -> None:
        self._check_there()
        options = distributed.BroadcastOptions()
        options.rootRank = 0
        options.timeout = limit = timedelta(seconds=self._spec.timeout_s)
        travelling, sends = buffer[: len(bucket)], self._spec.rank == 0
        if sends:
            travelling.copy_(bucket)
        work = self._group.broadcast([travelling], options)
        self._await(work)
        work.wait(limit)
        if not sends:
            bucket.copy_(travelling)

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
                _leave_behind(self._group, work, aborts=self._spec.backend == "nccl")
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
