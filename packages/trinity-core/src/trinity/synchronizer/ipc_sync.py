"""Let engines on the trainer's machine map its weights: nothing is sent.

    this process     trainer's process                  each engine's process
    share ---------> copied once into shared memory
    receive -----------------------------------------> mapped, and loaded from there

An engine on the trainer's GPU copies there what the trainer shares there, all others map memory of
the CPU. Where the GPU's cannot be shared, or is wanted for other things, all of them do.

Engines do not meet, and wait for nobody: what becomes of one is nothing to the others.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trinity.synchronizer.channel import TransferError
from trinity.synchronizer.cuda_ipc import HandleError
from trinity.synchronizer.direct_sync import GRACE_S, DirectSync, outcomes_of
from trinity.synchronizer.ipc_weights import CPU, GPU

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trinity.synchronizer.direct_sync import Outcomes, Peer, SenderPeer, There
    from trinity.synchronizer.ipc_weights import IpcWeights
    from trinity.synchronizer.staging import WeightManifest

logger = logging.getLogger(__name__)


class IpcSync(DirectSync):
    """Brings weights by memory that the trainer's process shares with the engines'."""

    needs_one_machine = True
    _shared: IpcWeights  # in this sync
    _device: str | None = None  # the trainer's; "": it shares no GPU; None: nobody has asked

    def _packed(self, sender: SenderPeer) -> WeightManifest:
        self._shared = sender.share(self._where(sender))
        if self._shared.refusal:
            self._keep_to_cpu(self._shared.refusal)
        return self._shared.manifest

    def _where(self, sender: SenderPeer) -> tuple[str, ...]:
        """Return where the engines can have the weights."""
        assert self._config is not None
        if self._config.trainer.param_offload or self._config.is_colocated:
            return (CPU,)  # engines need the GPU's memory, and a copy there stays
        if self._device is None:
            outcomes = self._outcomes_of("device", [sender])
            self._check(outcomes)
            self._device = str(outcomes[sender])
        if not self._device:
            return (CPU,)
        engines: Any = self._engines  # Any: engines in processes of their own are receivers
        calls = {one: one.start("device") for one in engines}
        found = outcomes_of(calls, limit_s=GRACE_S, grace_s=GRACE_S).values()
        are_there = [outcome == self._device for outcome in found]
        return ((CPU,) if not all(are_there) else ()) + ((GPU,) if any(are_there) else ())

    def _brought(self, left: There, manifest: WeightManifest) -> Outcomes:
        assert self._sender is not None
        outcomes = self._outcomes_of("receive", left, self._shared)
        refused = {one: o for one, o in outcomes.items() if isinstance(o, HandleError)}
        if refused:
            self._shared = self._sender.share((CPU,))
            self._keep_to_cpu(str(next(iter(refused.values()))))
            outcomes |= self._outcomes_of("receive", refused, self._shared)
        if any(isinstance(outcome, TransferError) for outcome in outcomes.values()):
            outcomes |= self._outcomes_of("device", [self._sender])
        self._check(outcomes)
        return outcomes

    def _keep_to_cpu(self, why: str) -> None:
        """Share by memory of the CPU from now on, and say so."""
        self._device = ""
        logger.warning(
            "trainer and engines share a GPU, but the weight sync uses CPU memory from now on: %s "
            "It is slower; results are the same", why,
        )  # fmt: skip

    def _outcomes_of(self, step: str, members: Iterable[Peer], *told: Any) -> dict[Any, Any]:
        limit_s = (self._load_s if step == "receive" else self._timeout_s) + GRACE_S
        calls = {member: member.start(step, *told) for member in members}
        return dict(outcomes_of(calls, limit_s=limit_s, grace_s=limit_s))
