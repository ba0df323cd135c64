"""One process's end of the way that weights take: a process group of its own.

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

from trinity.errors import TrinityError
from trinity.synchronizer.shipment import checksum, cut

if TYPE_CHECKING:
    from torch import Tensor

    from trinity.common.ports import WeightSnapshot
    from trinity.synchronizer.shipment import Shipment

__all__ = ["Backend", "BrokenOffError", "Channel", "Invitation", "device_id"]

Backend = Literal["gloo", "nccl"]
_LOOK_S = 1.0  # at what was left behind


class BrokenOffError(TrinityError):
    """Weights did not arrive whole; those that a process had are as they were."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Invitation:
    """How one process joins a group."""

    place: str  # where the members meet
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
        store: of ``torch.distributed``, where the members meet.
        invitation: how.

    Raises:
        BrokenOffError: somebody did not come.
    """

    def __init__(self, store: Any, invitation: Invitation) -> None:  # Any: half typed
        self._invitation = invitation
        self._changed = threading.Condition()
        self._has_left = False
        try:
            self._group = _group(store, invitation)
        except RuntimeError as error:
            raise BrokenOffError(
                f"the {invitation.size} processes of {invitation.group} did not meet within "
                f"{invitation.meet_s:.0f} s: {_first_line(error)}"
            ) from error

    def send(self, flat: Tensor) -> None:
        """Broadcast these bytes.

        Raises:
            BrokenOffError: a member is gone or silent.
        """
        self._broadcast(flat)

    def receive(self, shipment: Shipment) -> WeightSnapshot:
        """Return the weights, once all of them are here and are those that were announced.

        Raises:
            BrokenOffError: they are not, or a member is gone or silent.
        """
        flat = torch.empty(shipment.num_bytes, dtype=torch.uint8)
        self._broadcast(flat)
        if checksum(flat) != shipment.checksum:
            raise BrokenOffError(
                f"the weights that came are not those of version {shipment.version}: their "
                f"checksum is another."
            )
        return cut(flat, shipment)

    def leave(self) -> None:
        """Leave the group, in another thread too: whoever waits here waits no longer."""
        with self._changed:
            self._has_left = True
            self._changed.notify_all()

    def _broadcast(self, flat: Tensor) -> None:
        size = self._invitation.bucket_bytes
        try:
            for begin in range(0, len(flat), size):
                self._broadcast_one(flat[begin : begin + size])
        except RuntimeError as error:
            self.leave()
            raise BrokenOffError(f"the broadcast broke off: {_first_line(error)}") from error

    def _broadcast_one(self, bucket: Tensor) -> None:
        if self._has_left:
            raise BrokenOffError("this process has left the group.")
        limit = timedelta(seconds=self._invitation.timeout_s)
        options = distributed.BroadcastOptions()
        options.rootRank, options.timeout = 0, limit
        on_gpu = self._invitation.backend == "nccl"
        travelling = bucket.cuda() if on_gpu else bucket
        work = self._group.broadcast([travelling], options)
        ended = work.get_future()
        ended.add_done_callback(self._tell)
        with self._changed:
            self._changed.wait_for(
                lambda: self._has_left or ended.done(), self._invitation.timeout_s + _LOOK_S
            )
        if not ended.done():
            self._has_left = True
            _leave_behind(self._group, work)
            raise BrokenOffError("the broadcast broke off: a member is gone or silent")
        work.wait(limit)
        if on_gpu and self._invitation.rank:
            bucket.copy_(travelling)

    def _tell(self, _: Any) -> None:
        with self._changed:
            self._changed.notify_all()


def _leave_behind(group: Any, work: Any) -> None:  # Any: half typed
    """Keep what a thread of the group still works on; freeing it would wait for that.

    Gloo cannot be told to stop (its ``abort`` does nothing): it ends by its own limit.
    """

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


def _group(store: Any, invitation: Invitation) -> Any:  # Any: half typed
    own: Any = distributed
    place = own.PrefixStore(invitation.group, store)
    rank, size = invitation.rank, invitation.size
    if invitation.backend == "nccl":
        options = own.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=invitation.timeout_s)
        return own.ProcessGroupNCCL(place, rank, size, options)
    return own.ProcessGroupGloo(place, rank, size, timedelta(seconds=invitation.meet_s))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
