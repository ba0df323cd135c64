"""Let the engines have weights from the trainer's process, whichever way they come.

    this process               trainer's process          each engine's process
    pack --------------------> a copy, all in one run
    bring -------------------> the way of a method ------> whole, or not at all
    load --------------------------------------------------> between two batches, as ever

An engine that is lost, silent, or takes no whole weights is done without: its process is ended, and
the one that takes its place gets the weights from the trainer's copy.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trinity.errors import RayLostError, WorkerLostError
from trinity.synchronizer.channel import BrokenOffError
from trinity.synchronizer.memory import MemorySync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.common.config import Config
    from trinity.common.ports import RolloutEngine, WeightSnapshot, WeightVersion
    from trinity.synchronizer.members import Receiver, Sender
    from trinity.synchronizer.shipment import Shipment

    There = Mapping[Receiver, int]  # engines, and which process of each is there
    Outcomes = Mapping[Any, Any]  # by member: what its step gave, or why it failed

logger = logging.getLogger(__name__)

GRACE_S = 10.0  # for an answer to come back; for the others, once one has failed
NUM_TRIES = 2  # with engines that are there
_OF_THE_WAY = (BrokenOffError, WorkerLostError, TimeoutError)


class SendingSync(MemorySync):
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
        sender: Sender | None = None,
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
        shipment = self._packed(self._sender)
        receivers: Any = self._engines  # Any: engines in processes of their own are receivers
        expected = {one: one.expect(self._sender) for one in receivers}
        left: There = {one: process for one, process in expected.items() if process is not None}
        self._why.clear()
        for _ in range(NUM_TRIES):
            left = self._without_those_reached(left, shipment)
        for one in left:
            reason = self._why.get(one.name, "").rstrip(".")
            why = f"it did not take them whole, {NUM_TRIES} times ({reason})"
            self._do_without(one, why, ends=True)
        return shipment.version

    def _packed(self, sender: Sender) -> Shipment:
        """Let the trainer copy its weights for this sync."""
        return sender.pack()

    def _brought(self, left: There, shipment: Shipment) -> Outcomes:
        """Bring the weights to these engines; return how it ended for each.

        Those that are missing there were done without before.
        """
        raise NotImplementedError

    def _without_those_reached(self, left: There, shipment: Shipment) -> There:
        """Bring them to all of these, let those who have the weights load; return the others."""
        outcomes = self._brought(left, shipment) if left else {}
        left = {one: process for one, process in left.items() if one in outcomes}
        for one in left:
            if isinstance(outcomes[one], Exception):
                self._why[one.name] = str(outcomes[one])
            else:
                one.load()
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
                sender.name, cause="it does not come back from sending weights", is_final=True
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
                told = f"it is there and does not answer (sync_timeout is {self._timeout_s:.0f} s)"
                self._do_without(one, told, ends=True)
        gone = WorkerLostError, TimeoutError
        return {one: p for one, p in left.items() if not isinstance(outcomes[one], gone)}

    def _do_without(self, one: Receiver, why: str, *, ends: bool) -> None:
        logger.warning(
            "%s is missing where weights are sent: %s. They go to the others, and to the process "
            "that takes its place", one.name, why,
        )  # fmt: skip
        one.miss(ends=ends)

    @property
    def _timeout_s(self) -> float:
        assert self._config is not None
        return self._config.synchronizer.sync_timeout
