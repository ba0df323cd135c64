"""Broadcast weights from the trainer's process to all engines' at once, without a store between.

    this process               trainer's process          each engine's process
    join, for new members ---> Channel <== gloo, nccl ==> Channel
    send, receive -----------> bucket, bucket, ... -----> compared with what was told, and loaded

A group belongs to its members: where an engine was lost, or came back, the next one is made under a
name that none had. An engine that does not come, or takes only a part, is done without.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.errors import ModelError
from trinity.synchronizer.channel import CONNECT_S, Backend, GroupSpec
from trinity.synchronizer.direct_sync import GRACE_S, NUM_TRIES, DirectSync, outcomes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.synchronizer.direct_sync import Outcomes, Peer, There
    from trinity.synchronizer.staging import WeightManifest

logger = logging.getLogger(__name__)

MEET_S = 60.0  # for processes that are there, to find each other


class BroadcastSync(DirectSync):
    """Brings weights by a process group over the engines and the trainer.

    The configuration names the group, and says how large a bucket is.
    """

    prefers: ClassVar[Backend] = "gloo"
    _num_groups = 0
    _members: tuple[tuple[str, int], ...] = ()  # of the group that there is; (): none

    def _met(self, left: There) -> There:
        """Return those of them that are in a group with the trainer: the one there is, or another.

        Raises:
            ModelError: they are there, and do not reach each other.
        """
        failure: Exception | None = None
        num_tries = 0  # that lost none of them
        while num_tries < NUM_TRIES:
            members = tuple((one.name, process) for one, process in left.items())
            if not left or members == self._members:
                return left
            specs = self._group_specs(left)
            limit_s = MEET_S + CONNECT_S * (specs[0][0].backend == "nccl")
            outcomes = self._outcomes("join", "join", left, told=specs, limit_s=limit_s)
            there, left = left, self._without_those_gone(left, outcomes)
            num_tries += there == left
            failures = [one for one in outcomes.values() if isinstance(one, Exception)]
            if not failures:
                self._members = members
                return left
            failure = failures[0]
        assert self._sender is not None
        names = ", ".join(one.name for one in left)
        raise ModelError(
            f"{self._sender.name} and {names} cannot reach each other for a weight sync: {failure} "
            f"Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to their common network interface, or "
            f"set synchronizer.sync_method: memory."
        )

    def _brought(self, left: There, manifest: WeightManifest) -> Outcomes:
        left = self._met(left)
        if not left:
            return {}
        told: list[tuple[Any, ...]] = [(), *[(manifest,)] * len(left)]
        num_waits = 1 + sum(1 for _ in manifest.buckets(self._bucket_bytes))
        limit_s = self._load_s + self._timeout_s * num_waits
        outcomes = self._outcomes("send", "receive", left, told=told, limit_s=limit_s)
        if any(isinstance(outcome, Exception) for outcome in outcomes.values()):
            self._members = ()  # nobody knows how far each of them is
        return outcomes

    def _outcomes(
        self,
        send: str,
        receive: str,
        left: There,
        *,
        told: Sequence[tuple[Any, ...]],
        limit_s: float,
    ) -> Mapping[Peer, Any]:
        """Let the sender take one step and the receivers another; return how it ended for each.

        Raises:
            Exception: it is of more than one engine, as ``_check`` says.
        """
        sender = self._sender
        assert sender is not None
        members: list[Peer] = [sender, *left]
        # Gloo, once it meets, cannot be told to end.
        grace_s = GRACE_S + MEET_S * (send == "join")
        calls = {
            member: member.start(receive if number else send, *told[number])
            for number, member in enumerate(members)
        }
        outcomes = outcomes_of(
            calls, limit_s=limit_s + GRACE_S, grace_s=grace_s, group=self._group_name
        )
        self._check(outcomes)
        return outcomes

    def _group_specs(self, left: There) -> list[tuple[GroupSpec]]:
        """Return how each member joins the next group, the sender first."""
        sender, config = self._sender, self._config
        assert sender is not None
        assert config is not None
        self._members = ()
        self._num_groups += 1
        endpoint, backend = sender.endpoint(), self._backend([sender, *left])
        return [
            (
                GroupSpec(
                    endpoint=endpoint,
                    group=self._group_name,
                    rank=rank,
                    size=1 + len(left),
                    backend=backend,
                    meet_s=min(MEET_S, self._timeout_s),
                    load_s=self._load_s,
                    timeout_s=self._timeout_s,
                    bucket_bytes=self._bucket_bytes,
                ),
            )
            for rank in range(1 + len(left))
        ]

    def _backend(self, members: Sequence[Peer]) -> Backend:
        """Return what carries the bytes: gloo, unless each member has a GPU of its own."""
        if self.prefers == "gloo":
            return "gloo"
        calls = {member: member.start("device") for member in members}
        devices = outcomes_of(calls, limit_s=MEET_S, grace_s=GRACE_S)
        found = {device for device in devices.values() if device and isinstance(device, str)}
        if len(found) == len(members):
            return self.prefers
        logger.info("not every process has its own GPU; using gloo for the weight sync")
        return "gloo"

    @property
    def _group_name(self) -> str:
        assert self._config is not None
        return f"{self._config.synchronizer.group_name}/{self._num_groups}"

    @property
    def _bucket_bytes(self) -> int:
        assert self._config is not None
        return self._config.explorer.rollout_model.weight_sync_buffer_size << 20


class GlooSync(BroadcastSync):
    """Over the network of the machines, from CPU memory to CPU memory."""


class NcclSync(BroadcastSync):
    """From GPU to GPU where each process has one of its own; gloo elsewhere."""

    prefers: ClassVar[Backend] = "nccl"
