"""Bring weights from the trainer's process to the engines', directed from the driver's.

    this process               trainer's process          each engine's process
    pack --------------------> a copy, all in one run
    bring -------------------> as a method does it ------> loaded between two batches

An engine that is lost, silent, or takes no whole weights is done without: its process is ended, and
the one that takes its place gets the weights from the trainer's copy.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Protocol

from trinity.common.config.synchronizer import LEAST_LOAD_S
from trinity.errors import RayLostError, WorkerLostError
from trinity.synchronizer.channel import TransferError
from trinity.synchronizer.memory_sync import MemorySync

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from trinity.common.config import Config
    from trinity.common.ports import RolloutEngine, WeightSnapshot, WeightVersion
    from trinity.synchronizer.ipc_weights import IpcWeights
    from trinity.synchronizer.staging import WeightManifest

    There = Mapping["ReceiverPeer", int]  # engines, and which process of each is there
    Outcomes = Mapping[Any, Any]  # by member: what its step gave, or why it failed

logger = logging.getLogger(__name__)

GRACE_S = 10.0  # for an answer to come back; for the others, once one has failed
NUM_TRIES = 2  # with engines that are there
_LOOK_S = 0.5  # at one of those who have not answered
_OF_THE_WAY = (TransferError, WorkerLostError, TimeoutError)


class DirectSync(MemorySync):
    """Brings weights from process to process.

    In one process there is nothing to bring: weights are handed over as :class:`MemorySync` does.

    Args:
        engines: all of them.
        sender: the trainer's process; None: all parts share one.
        config: what ``synchronizer`` says of time, and what else the method reads.
    """

    def __init__(
        self,
        engines: Sequence[RolloutEngine],
        *,
        sender: SenderPeer | None = None,
        config: Config | None = None,
    ) -> None:
        super().__init__(engines)
        self._sender = sender
        self._config = config
        self._why: dict[str, str] = {}  # an engine did not take the weights, in this sync

    def sync(self, snapshot: Callable[[], WeightSnapshot]) -> WeightVersion:
        """Let all engines that are there load the trainer's weights; return their version.

        Raises:
            WorkerLostError: the trainer's process is lost, or does not answer any more.
            ModelError: the processes cannot send each other weights.
        """
        if self._sender is None or self._config is None:
            return super().sync(snapshot)
        manifest = self._packed(self._sender)
        receivers: Any = self._engines  # Any: engines in processes of their own are receivers
        expected = {one: one.expect(self._sender) for one in receivers}
        left: There = {one: process for one, process in expected.items() if process is not None}
        self._why.clear()
        for _ in range(NUM_TRIES):
            left = self._without_those_reached(left, manifest)
        for one in left:
            reason = self._why.get(one.name, "").rstrip(".")
            why = f"it did not receive all weights in {NUM_TRIES} attempts ({reason})"
            self._do_without(one, why, ends=True)
        return manifest.version

    def _packed(self, sender: SenderPeer) -> WeightManifest:
        return sender.pack()

    def _brought(self, left: There, manifest: WeightManifest) -> Outcomes:
        """Bring the weights to these engines; return how it ended for each.

        Those that are missing there were done without before.
        """
        raise NotImplementedError

    def _without_those_reached(self, left: There, manifest: WeightManifest) -> There:
        """Bring them to all of these; return those that have not loaded them."""
        outcomes = self._brought(left, manifest) if left else {}
        left = {one: process for one, process in left.items() if one in outcomes}
        for one in left:
            if isinstance(outcomes[one], Exception):
                self._why[one.name] = str(outcomes[one])
            else:
                one.loaded()
        left = self._without_those_gone(left, outcomes)
        return {one: p for one, p in left.items() if isinstance(outcomes[one], Exception)}

    def _check(self, outcomes: Outcomes) -> None:
        """Let an engine be missing, and nothing else.

        Raises:
            RayLostError: all processes are lost.
            WorkerLostError: the sender is gone, or silent; then its process is ended.
            Exception: a member failed for another reason than the way between them.
        """
        lost = [one for one in outcomes.values() if isinstance(one, RayLostError)]
        if lost:  # nobody answers then
            raise lost[0]
        sender = self._sender
        assert sender is not None
        own = outcomes.get(sender)
        if isinstance(own, TimeoutError):
            sender.end()
            raise WorkerLostError(
                sender.name, cause="it did not return from a weight sync", is_final=True
            )
        if isinstance(own, WorkerLostError):
            raise own
        for outcome in outcomes.values():
            if isinstance(outcome, Exception) and not isinstance(outcome, _OF_THE_WAY):
                raise outcome

    def _without_those_gone(self, left: There, outcomes: Outcomes) -> There:
        """Return those that are there; let another process take the place of one that is silent."""
        for one in left:
            outcome = outcomes[one]
            if isinstance(outcome, WorkerLostError):
                self._do_without(one, outcome.cause, ends=False)
            elif isinstance(outcome, TimeoutError):
                told = f"it is unresponsive (sync_timeout is {self._timeout_s:.0f} s)"
                self._do_without(one, told, ends=True)
        gone = WorkerLostError, TimeoutError
        return {one: p for one, p in left.items() if not isinstance(outcomes[one], gone)}

    def _do_without(self, one: ReceiverPeer, why: str, *, ends: bool) -> None:
        logger.warning(
            "weight sync without %s: %s. The other engines and its replacement get the "
            "weights", one.name, why,
        )  # fmt: skip
        one.mark_lost(ends=ends)

    @property
    def _load_s(self) -> float:
        return max(LEAST_LOAD_S, self._timeout_s)

    @property
    def _timeout_s(self) -> float:
        assert self._config is not None
        return self._config.synchronizer.sync_timeout


class PendingStep(Protocol):
    """A step that another process was told to take."""

    def result(self, *, timeout_s: float | None = None) -> Any:
        """Return what it gave (Any: each step its own).

        Raises:
            WorkerLostError: the process ended.
            TimeoutError: there is no answer yet.
            Exception: why it failed.
        """


class Peer(Protocol):
    """A process that can be of a group."""

    @property
    def name(self) -> str:
        """Return the name of its worker."""

    def start(self, step: str, *told: Any) -> PendingStep:
        """Let it take a step: ``device``, ``join``, ``send`` or ``receive``."""

    def leave(self, group: str) -> None:
        """Let it leave the group of that name, at once, whatever it waits for there."""


class SenderPeer(Peer, Protocol):
    """The trainer's process."""

    def pack(self) -> WeightManifest:
        """Copy the weights there, for this sync and for engines that come back after it."""

    def share(self, where: Collection[str]) -> IpcWeights:
        """Copy the weights there to where processes of the same machine can have them.

        Args:
            where: in memory of the CPU, of the GPU, or both (``trinity.synchronizer.ipc_weights``).
        """

    def endpoint(self) -> str:
        """Return the endpoint of the rendezvous of all groups."""

    def end(self) -> None:
        """End the process."""


class ReceiverPeer(Peer, Protocol):
    """An engine, and the process that is there for it."""

    def expect(self, sender: Any) -> int | None:
        """Say that what the sender packed is wanted; return which process is there; None: none.

        Any: it gives its copy to a process that comes later.
        """

    def loaded(self) -> None:
        """Note that the process has loaded what it received."""

    def mark_lost(self, *, ends: bool) -> None:
        """Note that the process is lost; ``ends``: it is there, and is to be ended."""


def outcomes_of(
    calls: Mapping[Peer, PendingStep], *, limit_s: float, grace_s: float, group: str = ""
) -> dict[Peer, Any]:
    """Return what each call gave, or the exception that it raised; TimeoutError: no answer.

    Once one has failed, the others are told to leave the group, in which they may wait for it.

    Args:
        calls: by who was called.
        limit_s: until the last answer.
        grace_s: until the last answer, once one has failed.
        group: that they are in, or are about to join; empty: none.
    """
    waiting, outcomes = dict(calls), dict[Peer, Any]()
    has_failed = False
    deadline = time.monotonic() + limit_s
    while waiting:
        for member, call in list(waiting.items()):
            try:
                outcome = call.result(timeout_s=_LOOK_S)
            except TimeoutError as error:
                if time.monotonic() < deadline:
                    continue
                outcome = error
            except Exception as error:  # noqa: BLE001 -- what became of it is the caller's to judge
                outcome = error
            outcomes[member] = outcome
            del waiting[member]
            if isinstance(outcome, Exception) and not has_failed:
                has_failed, deadline = True, min(deadline, time.monotonic() + grace_s)
                for other in waiting if group else ():  # they may wait for this one
                    other.leave(group)
    return outcomes
