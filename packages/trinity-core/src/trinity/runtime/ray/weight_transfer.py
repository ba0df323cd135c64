"""The two ends of a sync from process to process, in those of the trainer and of an engine.

The sync methods :mod:`trinity.synchronizer.broadcast_sync` and ``ipc_sync`` direct both from the
driver, each step by its name.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from trinity.errors import ModelError
from trinity.runtime.environment import environment
from trinity.runtime.ray.address import node_address, use_own_interface
from trinity.runtime.ray.worker import WithPayload
from trinity.synchronizer.channel import Channel, TransferError, device_id
from trinity.synchronizer.cuda_ipc import empty_cache
from trinity.synchronizer.ipc_weights import IpcStagingBuffer, IpcWeights, open_weights
from trinity.synchronizer.staging import StagingBuffer
from trinity.trainer.rendezvous import Rendezvous, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from trinity.common.ports import WeightSnapshot
    from trinity.synchronizer.channel import GroupSpec
    from trinity.synchronizer.staging import WeightManifest

    Source = Callable[[], WeightSnapshot]

logger = logging.getLogger(__name__)

# Who waits in a group watches it. The thread by which torch does so otherwise ends the process, a
# minute after a member was late or lost, and marks the place where all groups meet, by which it
# may end later members, too. Torch reads this when a group is made.
_WITHOUT_WATCHDOG = {"gloo": {}, "nccl": {"TORCH_NCCL_BLOCKING_WAIT": 1}}


class _Peer:
    """A process's membership in the group that there is."""

    def __init__(self) -> None:
        self._channel: Channel | None = None  # None: it is in no group
        self._left = ""  # the last group that it was told to leave

    def device(self) -> str:
        return device_id()

    def join(self, spec: GroupSpec) -> None:
        """Leave the group there is, and join another once all of its members are there.

        Raises:
            TransferError: somebody did not come.
        """
        self.leave()
        use_own_interface()
        try:
            store = connect(spec.endpoint, timeout_s=spec.meet_s)
        except RuntimeError as error:
            raise TransferError(f"nobody answers where weights are sent from: {error}") from error
        self._channel = channel = Channel(spec)  # known before it waits: it may have to leave
        if self._left == spec.group:
            channel.leave()
        try:
            with environment(_WITHOUT_WATCHDOG[spec.backend]):
                channel.meet(store, interface=os.environ.get("NCCL_SOCKET_IFNAME", ""))
        except BaseException:
            self.leave()
            raise
        logger.info(
            "rank %d of %d of %s, %s",
            spec.rank, spec.size, spec.group, spec.backend,
        )  # fmt: skip

    def leave(self, group: str | None = None) -> None:
        """Leave the group there is, if there is one; who waits there, waits no longer.

        Args:
            group: leave only this one, also where it is yet to be joined; None: any.
        """
        self._left = group or self._left
        channel = self._channel
        if channel is not None and group in {None, channel.group}:
            self._channel = None
            channel.leave()

    def _joined(self) -> Channel:
        if self._channel is None:
            raise TransferError("this process is in no group.")
        return self._channel


class WeightSender(_Peer):
    """Of the trainer's process.

    Args:
        snapshot: gives the weights as they are.
        timeout_s: how long the others may wait for each other.
        on_disk: ``synchronizer.copy_on_disk``.
    """

    def __init__(self, snapshot: Source, *, timeout_s: float, on_disk: bool | None = None) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._timeout_s = timeout_s
        self._staging = StagingBuffer(on_disk=on_disk)
        self._shared = IpcStagingBuffer()
        self._rendezvous: Rendezvous | None = None  # stays as long as this process

    def host_rendezvous(self) -> str:
        """Return the endpoint by which the members of all groups find each other."""
        if self._rendezvous is None:
            self._rendezvous = Rendezvous(node_address(), timeout_s=self._timeout_s)
        return self._rendezvous.endpoint

    def pack(self) -> WeightManifest:
        with self._snapshot() as snapshot:
            return self._staging.pack(snapshot)

    def share(self, where: Collection[str]) -> IpcWeights:
        """Copy the weights to where processes of this machine can have them.

        Raises:
            ModelError: there is no memory for them.
        """
        with self._snapshot() as snapshot:
            return self._shared.share(snapshot, where=where)

    def send(self) -> None:
        """Broadcast what was packed.

        Raises:
            TransferError: a member is gone or silent.
        """
        self._joined().send(*self._staging.packed)

    def kept(self) -> WithPayload:
        """Return what was packed or shared last, for one who comes later, by the object store.

        Raises:
            ModelError: nothing was.
        """
        packed = self._shared.kept() or self._staging.kept()
        if packed is None:
            raise ModelError("the trainer has packed no weights yet.")
        return WithPayload(packed.version, packed)


class WeightReceiver(_Peer):
    """Of an engine's process."""

    def __init__(self) -> None:
        super().__init__()
        self._was_on_gpu = False

    def receive(self, told: WeightManifest | IpcWeights) -> WeightSnapshot:
        """Return the weights; those of a group come while they are read.

        Args:
            told: what comes by the group, or where it can be had.

        Raises:
            TransferError: they do not arrive whole.
            ModelError: this process cannot have them.
        """
        if not isinstance(told, IpcWeights):
            channel = self._joined()
            self._was_on_gpu = channel.is_on_gpu
            return channel.receive(told)
        received = open_weights(told)
        self._was_on_gpu = any(tensor.is_cuda for tensor in received.tensors.values())
        logger.info(
            "%s the weights of v%d: %.0f MiB",
            "copied on the GPU" if self._was_on_gpu else "mapped",
            told.manifest.version, told.manifest.num_bytes / 2**20,
        )  # fmt: skip
        return received

    def let_go(self) -> None:
        """Give a GPU back the memory of what was taken, which is loaded."""
        if self._was_on_gpu:
            empty_cache()
