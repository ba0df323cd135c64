"""Broadcast weights from the trainer's process to all engines' at once, without a store between.

    this process               trainer's process          each engine's process
    pack --------------------> a copy, all in one run
    join, for new members ---> Channel <== gloo, nccl ==> Channel
    send, receive -----------> bucket, bucket, ... -----> staged, and compared with what was told
    load --------------------------------------------------> between two batches, as ever

A group belongs to its members: where an engine was lost, or came back, the next one is made under a
name that none had. An engine that does not come, or takes only a part, is done without: its process
is ended, and the one that takes its place gets the weights from the trainer's copy.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.errors import ModelError, RayLostError, RoomLostError
from trinity.synchronizer.channel import Backend, BrokenOffError, Invitation
from trinity.synchronizer.members import outcomes_of
from trinity.synchronizer.memory import MemorySync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.common.config import Config
    from trinity.common.ports import RolloutEngine, WeightSnapshot, WeightVersion
    from trinity.synchronizer.members import Member, Receiver, Sender
    from trinity.synchronizer.shipment import Shipment

    There = Mapping[Receiver, int]  # engines, and which process of each is there

__all__ = ["GlooSync", "GroupSync", "NcclSync"]

logger = logging.getLogger(__name__)

MEET_S = 60.0  # for processes that are there, to find each other
GRACE_S = 10.0  # for the others, once one has failed
NUM_TRIES = 2  # with engines that are there
_OF_THE_WAY = (BrokenOffError, RoomLostError, TimeoutError)


class GroupSync(MemorySync):
    """Brings weights by a process group over the engines and the trainer.

    In one process there is nothing to bring: weights are handed over as :class:`MemorySync` does.

    Args:
        engines: all of them.
        sender: the trainer's process; None: all parts share one.
        config: what ``synchronizer`` says of time and names, and the size of a bucket.
    """

    prefers: ClassVar[Backend] = "gloo"

    def __init__(
        self,
        engines: Sequence[RolloutEngine],
        *,
        sender: Sender | None = None,
        config: Config | None = None,
    ) -> None:
        super().__init__(engines)
        self._sender = sender
        self._config = config
        self._num_groups = 0
        self._members: tuple[tuple[str, int], ...] = ()  # of the group that there is; (): none
        self._why: dict[str, str] = {}  # an engine did not take the weights, in this sync

    def sync(self, snapshot: Callable[[], WeightSnapshot]) -> WeightVersion:
        """Let all engines that are there load the trainer's weights; return their version.

        Raises:
            RoomLostError: the trainer's process is lost, or does not come back from a broadcast.
            ModelError: the processes do not reach each other.
        """
        if self._sender is None or self._config is None:
            return super().sync(snapshot)
        shipment = self._sender.pack()
        receivers: Any = self._engines  # Any: engines in processes of their own are receivers
        expected = {one: one.expect(self._sender) for one in receivers}
        left: There = {one: process for one, process in expected.items() if process is not None}
        self._why.clear()
        for _ in range(NUM_TRIES):
            left = self._without_those_reached(self._met(left), shipment)
        for one in left:
            reason = self._why.get(one.name, "").rstrip(".")
            why = f"it did not take them whole, {NUM_TRIES} times ({reason})"
            self._do_without(one, why, ends=True)
        return shipment.version

    def _met(self, left: There) -> There:
        """Return those of them that are in a group with the trainer: the one there is, or another.

        Raises:
            ModelError: they are there, and do not reach each other.
        """
        failure: Exception | None = None
        for _ in range(NUM_TRIES + len(left)):
            members = tuple((one.name, process) for one, process in left.items())
            if not left or members == self._members:
                return left
            outcomes = self._outcomes("join", "join", left, told=self._invitations(left))
            left = self._without_those_gone(left, outcomes)
            failures = [one for one in outcomes.values() if isinstance(one, Exception)]
            if not failures:
                self._members = members
                return left
            failure = failures[0]
        names = ", ".join(one.name for one in left)
        raise ModelError(
            f"{self._name} and {names} do not reach each other to send weights: {failure} Name the "
            f"network interface that they share in GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME, or "
            f"set synchronizer.sync_method: memory."
        )

    def _without_those_reached(self, left: There, shipment: Shipment) -> There:
        """Send to all of them, let those who have the weights load; return the others."""
        if not left:
            return left
        told: list[tuple[Any, ...]] = [(), *[(shipment,)] * len(left)]
        buckets = 1 + shipment.num_bytes // self._bucket_bytes
        outcomes = self._outcomes("send", "receive", left, told=told, times=buckets)
        if any(isinstance(outcome, Exception) for outcome in outcomes.values()):
            self._members = ()  # nobody knows how far each of them is
        for one in left:
            if isinstance(outcomes[one], Exception):
                self._why[one.name] = str(outcomes[one])
            else:
                one.load()
        left = self._without_those_gone(left, outcomes)
        return {one: p for one, p in left.items() if isinstance(outcomes[one], Exception)}

    def _outcomes(
        self,
        send: str,
        receive: str,
        left: There,
        *,
        told: Sequence[tuple[Any, ...]],
        times: int = 1,
    ) -> Mapping[Member, Any]:
        """Let the sender take one step and the receivers another; return how it ended for each.

        Raises:
            RayLostError: all are.
            RoomLostError: the sender is gone, or silent; then its process is ended.
            Exception: a member failed for another reason than the way between them.
        """
        sender = self._sender
        assert sender is not None
        members: list[Member] = [sender, *left]
        meets = send == "join"
        limit_s = MEET_S if meets else self._timeout_s * times
        grace_s = GRACE_S + MEET_S * meets  # gloo, once it meets, is not to be told to end
        calls = {
            member: member.start(receive if number else send, *told[number])
            for number, member in enumerate(members)
        }
        outcomes = outcomes_of(
            calls, limit_s=limit_s + GRACE_S, grace_s=grace_s, group=self._group_name
        )
        lost = [one for one in outcomes.values() if isinstance(one, RayLostError)]
        if lost:  # nobody answers then
            raise lost[0]
        own = outcomes[sender]
        if isinstance(own, TimeoutError):
            sender.end()
            raise RoomLostError(
                sender.name, cause="it does not come back from sending weights", is_final=True
            )
        if isinstance(own, RoomLostError):
            raise own
        for outcome in outcomes.values():
            if isinstance(outcome, Exception) and not isinstance(outcome, _OF_THE_WAY):
                raise outcome
        return outcomes

    def _without_those_gone(self, left: There, outcomes: Mapping[Member, Any]) -> There:
        """Return those that are there; let another process take the place of one that is silent."""
        for one in left:
            outcome = outcomes[one]
            if isinstance(outcome, RoomLostError):
                self._do_without(one, outcome.cause, ends=False)
            elif isinstance(outcome, TimeoutError):
                told = f"it is there and does not answer (sync_timeout is {self._timeout_s:.0f} s)"
                self._do_without(one, told, ends=True)
        gone = RoomLostError, TimeoutError
        return {one: p for one, p in left.items() if not isinstance(outcomes[one], gone)}

    def _do_without(self, one: Receiver, why: str, *, ends: bool) -> None:
        logger.warning(
            "%s is missing where weights are sent: %s. They go to the others, and to the process "
            "that takes its place", one.name, why,
        )  # fmt: skip
        one.miss(ends=ends)

    def _invitations(self, left: There) -> list[tuple[Invitation]]:
        """Return how each member joins the next group, the sender first."""
        sender, config = self._sender, self._config
        assert sender is not None
        assert config is not None
        self._members = ()
        self._num_groups += 1
        place, backend = sender.place(), self._backend([sender, *left])
        return [
            (
                Invitation(
                    place=place,
                    group=self._group_name,
                    rank=rank,
                    size=1 + len(left),
                    backend=backend,
                    meet_s=min(MEET_S, self._timeout_s),
                    timeout_s=self._timeout_s,
                    bucket_bytes=self._bucket_bytes,
                ),
            )
            for rank in range(1 + len(left))
        ]

    def _backend(self, members: Sequence[Member]) -> Backend:
        """Return what carries the bytes: gloo, unless each member has a GPU of its own."""
        if self.prefers == "gloo":
            return "gloo"
        calls = {member: member.start("device") for member in members}
        devices = outcomes_of(calls, limit_s=MEET_S, grace_s=GRACE_S)
        found = {device for device in devices.values() if device and isinstance(device, str)}
        if len(found) == len(members):
            return self.prefers
        logger.info("not every process has a GPU of its own: weights go over gloo")
        return "gloo"

    @property
    def _group_name(self) -> str:
        assert self._config is not None
        return f"{self._config.synchronizer.group_name}/{self._num_groups}"

    @property
    def _name(self) -> str:
        return self._sender.name if self._sender is not None else ""

    @property
    def _timeout_s(self) -> float:
        assert self._config is not None
        return self._config.synchronizer.sync_timeout

    @property
    def _bucket_bytes(self) -> int:
        assert self._config is not None
        return self._config.explorer.rollout_model.weight_sync_buffer_size << 20


class GlooSync(GroupSync):
    """Over the network of the machines, from CPU memory to CPU memory."""


class NcclSync(GroupSync):
    """From GPU to GPU where each process has one of its own; gloo elsewhere."""

    prefers: ClassVar[Backend] = "nccl"
