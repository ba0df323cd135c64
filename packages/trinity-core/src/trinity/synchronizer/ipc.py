"""Let engines on the trainer's machine map its weights: nothing is sent.

    this process     trainer's process                  each engine's process
    share ---------> copied once into shared memory
    receive -----------------------------------------> mapped, and loaded from there

Engines do not meet, and wait for nobody: what becomes of one is nothing to the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.synchronizer.channel import BrokenOffError
from trinity.synchronizer.members import outcomes_of
from trinity.synchronizer.sending import GRACE_S, SendingSync

if TYPE_CHECKING:
    from trinity.synchronizer.members import Sender
    from trinity.synchronizer.sending import Outcomes, There
    from trinity.synchronizer.shared import Shared
    from trinity.synchronizer.shipment import Shipment

__all__ = ["IpcSync"]


class IpcSync(SendingSync):
    """Brings weights by memory that the trainer's process shares with the engines'."""

    _shared: Shared  # in this sync

    def _packed(self, sender: Sender) -> Shipment:
        self._shared = sender.share()
        return self._shared.shipment

    def _brought(self, left: There, shipment: Shipment) -> Outcomes:
        """Let each of them map the weights; where one cannot, ask whether the trainer is there."""
        outcomes = self._outcomes_of("receive", left, self._shared)
        sender: Any = self._sender  # Any: there is one
        if any(isinstance(outcome, BrokenOffError) for outcome in outcomes.values()):
            outcomes |= self._outcomes_of("device", {sender: 0})
        self._check(outcomes)
        return outcomes

    def _outcomes_of(self, step: str, members: There, *told: Any) -> dict[Any, Any]:
        limit_s = self._timeout_s + GRACE_S
        calls = {member: member.start(step, *told) for member in members}
        return dict(outcomes_of(calls, limit_s=limit_s, grace_s=limit_s))
