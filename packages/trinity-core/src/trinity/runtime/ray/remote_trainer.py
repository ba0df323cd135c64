"""The trainer in another process, or in several: each rank is a worker.

train_step(batch) --reference--> trainer-0: a share of the gradient --+
                  --reference--> trainer-1: a share of the gradient --+--> summed, in every rank

Each call goes to all ranks at once, as what one does may need the others. So the first that is lost
ends all of them, and the run goes back to its checkpoint. So does one that the health monitor ends
because it gives no heartbeat, a stopped process say.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import ray

from trinity.common.ports import Trainer
from trinity.common.wire import encode
from trinity.errors import WorkerLostError
from trinity.runtime.ray.ray_processes import LOOK_S, check_ray
from trinity.runtime.ray.weight_sync import RemoteSender, snapshot_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports import WeightSnapshot
    from trinity.common.ports.trainer import WeightDigest
    from trinity.runtime.ray.worker_handle import Pending, WorkerHandle

logger = logging.getLogger(__name__)

GRACE_S = 10.0  # for the other ranks, once one has failed
READ_S = 60.0  # for an answer that is there


class RemoteTrainer(Trainer):
    """The trainer as the loop calls it.

    Args:
        workers: one that trains alone, or those of all ranks.

    Attributes:
        sender: of its weights, for sync methods that do without the object store.
    """

    def __init__(self, workers: Sequence[WorkerHandle]) -> None:
        self._workers = workers
        self.sender = RemoteSender(workers[0], pack=self._packed)

    def start_training(self) -> None:
        """Let the ranks find each other and make their trainers.

        Raises:
            TrinityError: they cannot.
        """
        endpoint = ""  # one alone needs none
        if len(self._workers) > 1:
            (endpoint,) = self._gathered([self._workers[0].start("host_rendezvous")])
        self._all("start_training", endpoint)

    def train_step(self, experiences: Sequence[Experience], *, step: int) -> Metrics:
        packet = ray.put(encode(experiences))  # once for all of them
        metrics: Metrics = self._all("train_step", packet, step=step)[0]
        return metrics

    def snapshot(self, *, copy: bool) -> WeightSnapshot:
        """Return the weights, which stay in the object store; ``copy`` makes no difference."""
        first, ref = self._workers[0].start_with_payload("snapshot")
        others = [worker.start("snapshot_beside") for worker in self._workers[1:]]
        version = self._gathered([first, *others])[0]
        return snapshot_of(version, ref)

    def weight_digest(self) -> WeightDigest | None:
        digest: WeightDigest | None = self._workers[0].call("weight_digest")
        return digest

    def _packed(self, *told: Any) -> Any:  # Any: a step, and what it gives
        first = self._workers[0].start("weights", *told)
        others = [worker.start("snapshot_beside") for worker in self._workers[1:]]
        return self._gathered([first, *others], may_fail_alone=True)[0]

    def save(self, directory: Path) -> None:
        self._all("save", directory.absolute())

    def load(self, directory: Path) -> None:
        self._all("load", directory.absolute())

    def close(self) -> None:
        """Leave the workers to whoever started them."""

    def _all(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        return self._gathered([worker.start(method, *args, **kwargs) for worker in self._workers])

    def _gathered(self, calls: Sequence[Pending], *, may_fail_alone: bool = False) -> list[Any]:
        """Return what each rank returned.

        Args:
            calls: one of each rank.
            may_fail_alone: what rank 0 does with what all of them gave it, it does by itself: if it
                cannot, the others are still in step.

        Raises:
            WorkerLostError: a rank is gone, is unresponsive or failed alone; the others are ended.
            Exception: all ranks failed.
        """
        if len(self._workers) == 1:
            return [calls[0].result()]
        waiting = {call.ref: rank for rank, call in enumerate(calls)}
        values: dict[int, Any] = {}
        failures: dict[int, Exception] = {}
        deadline: float | None = None  # None: nobody has failed
        while waiting and (deadline is None or time.monotonic() < deadline):
            for ref in ray.wait(list(waiting), num_returns=1, timeout=LOOK_S / 2)[0]:
                rank = waiting.pop(ref)
                try:
                    values[rank] = calls[rank].result(timeout_s=READ_S)
                except Exception as error:  # noqa: BLE001 -- whatever a rank raised
                    failures[rank] = error
            check_ray()
            self._check_heartbeats()
            if failures and deadline is None:
                deadline = time.monotonic() + GRACE_S
        if failures:
            num_of_all = 1 if may_fail_alone and not waiting else len(calls)
            raise self._failure(failures, waiting=sorted(waiting.values()), num_of_all=num_of_all)
        return [values[rank] for rank in range(len(calls))]

    def _check_heartbeats(self) -> None:
        for worker in self._workers:
            if worker.lost is not None:
                raise self._ended(worker.lost)

    def _failure(
        self, failures: dict[int, Exception], *, waiting: Sequence[int], num_of_all: int
    ) -> Exception:
        """Return the error to tell; unless it is of all ranks, they are out of step, and end.

        Args:
            failures: by rank.
            waiting: ranks that have not answered.
            num_of_all: so many failures leave the ranks in step.
        """
        lost = next((one for one in failures.values() if isinstance(one, WorkerLostError)), None)
        if lost is not None:
            return self._ended(lost)
        own = {rank: error for rank, error in failures.items() if not _is_of_group(error)}
        if waiting and not own:  # a machine that is gone is known to be so a minute later
            cause = "it does not answer, and the other ranks do not reach it"
            return self._ended(WorkerLostError(self._workers[waiting[0]].name, cause=cause))
        rank = min(own or failures)
        first = failures[rank]
        if own and len(failures) == num_of_all:
            return first
        cause = f"{type(first).__name__}: {first}"
        return self._ended(WorkerLostError(self._workers[rank].name, cause=cause))

    def _ended(self, lost: WorkerLostError) -> WorkerLostError:
        """End all ranks, which could only wait for the one that is lost."""
        logger.warning("%s; the trainer's other ranks end with it", lost)
        for worker in self._workers:
            worker.kill()
        return lost


def _is_of_group(error: Exception) -> bool:
    """Return whether it says that ranks did not reach each other, which every one of them may."""
    return type(error).__name__.startswith("Dist") or "gloo" in str(error)
