"""The trainer in a process of its own, or in several: each rank is a worker."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trinity.common.ports.trainer import digest_of
from trinity.common.ports.weights import TensorStream
from trinity.runtime.assembly import make_trainer
from trinity.runtime.ray.address import node_address, use_own_interface
from trinity.runtime.ray.worker import WithPayload
from trinity.runtime.record.samples import SampleLog
from trinity.synchronizer.weights import PackedWeights

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from trinity.common.metrics import Metrics
    from trinity.common.ports import WeightSnapshot
    from trinity.common.ports.trainer import WeightDigest
    from trinity.common.wire import Packet
    from trinity.runtime.ray.weight_transfer import WeightSender
    from trinity.runtime.ray.worker import WorkerContext


class TrainerWorker:
    """Trains on packets, alone or as one of several processes that train one model.

    Each rank is given every batch. :class:`~trinity.runtime.ray.remote_trainer.RemoteTrainer` calls
    all of them at once: what one does, the others may have to do with it. Their trainers are made
    by :meth:`start_training`.

    Args:
        context: of the worker.
        total_steps: optimizer steps of the run, for the learning rate.
        rank: of this process.
        num_ranks: how many there are.
        waits: one alone does so, too: the engine on its GPU measures first what memory is left.
    """

    def __init__(
        self,
        context: WorkerContext,
        *,
        total_steps: int,
        rank: int = 0,
        num_ranks: int = 1,
        waits: bool = False,
    ) -> None:
        self._context = context
        self._total_steps = total_steps
        self._rank = rank
        self._num_ranks = num_ranks
        self._sync_timeout = context.config.synchronizer.sync_timeout
        self._hosted: Any = None  # of rank 0, as long as it lives
        self._trainer: Any = None  # None: it is yet to be made
        self._digest: WeightDigest | None = None  # of the weights that were given last
        self._samples: SampleLog | None = None  # None: this process keeps none
        if num_ranks == 1 and not waits:
            self._make_trainer(group=None)
        else:  # its imports take long
            context.manager.load("trainer", context.config.trainer.trainer_type)

    def host_rendezvous(self) -> str:
        """Return the endpoint by which the ranks find each other; rank 0 alone is asked."""
        from trinity.trainer.rendezvous import Rendezvous  # brings torch

        self._hosted = Rendezvous(node_address(), timeout_s=self._sync_timeout)
        return str(self._hosted.endpoint)

    def start_training(self, endpoint: str) -> None:
        """Join the group of all ranks, if there are others, and make the trainer.

        Raises:
            TrinityError: somebody is missing, or the trainer cannot be made.
        """
        if self._num_ranks == 1:
            if self._trainer is None:
                self._make_trainer(group=None)
            return
        from trinity.trainer.rendezvous import init_process_group

        self._take_its_cores()
        use_own_interface()
        self._make_trainer(
            group=init_process_group(
                endpoint, rank=self._rank, size=self._num_ranks, timeout_s=self._sync_timeout
            )
        )

    def train_step(self, packet: Packet, *, step: int) -> Metrics:
        experiences = packet.decode()
        metrics: Metrics = self._trainer.train_step(experiences, step=step)
        if self._samples is not None:
            self._samples.trained(step, experiences)
        return metrics

    def snapshot(self) -> WithPayload:
        """Return the version, and the weights; they are copied once, into the object store."""
        with self._snapshot() as snapshot:
            return WithPayload(snapshot.version, PackedWeights.of(snapshot))

    def weight_digest(self) -> WeightDigest | None:
        return self._digest

    def _snapshot(self) -> WeightSnapshot:
        """Return the weights as engines hold them; their digest is made while they are read."""
        self._digest = digest = None if self._context.config.audit == "off" else {}

        def noted(name: str, tensor: Tensor) -> Tensor:
            if digest is not None:
                digest.update(digest_of({name: tensor}))
            return tensor

        dtype = self._context.config.explorer.rollout_model.dtype
        return TensorStream.rounded(self._trainer.snapshot(copy=False), dtype, noted)

    def snapshot_beside(self) -> None:
        """Do what rank 0 needs of this rank for :meth:`snapshot`."""
        with self._trainer.snapshot(copy=False):
            pass

    def weights(self, step: str, *told: Any) -> Any:
        """Take a step of a sync from process to process; what it gives is its own (Any)."""
        return getattr(self._weight_sender, step)(*told)

    def save(self, directory: Path) -> None:
        self._trainer.save(directory)

    def load(self, directory: Path) -> None:
        self._trainer.load(directory)

    def close(self) -> None:
        if self._trainer is not None:
            self._trainer.close()

    @cached_property
    def _weight_sender(self) -> WeightSender:
        from trinity.runtime.ray.weight_transfer import WeightSender  # brings torch

        on_disk = self._context.config.synchronizer.copy_on_disk
        return WeightSender(self._snapshot, timeout_s=self._sync_timeout, on_disk=on_disk)

    def _make_trainer(self, *, group: Any) -> None:
        """Make the trainer, and keep its samples if this is the process that does.

        Args:
            group: of ``torch.distributed``; None: this process trains alone.
        """
        config, manager = self._context.config, self._context.manager
        self._trainer = make_trainer(config, manager, total_steps=self._total_steps, group=group)
        if self._rank == 0:
            self._samples = SampleLog.of(
                config, manager, trainer=self._trainer, rundir=self._context.rundir
            )

    def _take_its_cores(self) -> None:
        """Leave the other ranks theirs, unless somebody has said how many threads there are."""
        if "OMP_NUM_THREADS" not in os.environ:
            import torch

            torch.set_num_threads(max(1, torch.get_num_threads() // self._num_ranks))
