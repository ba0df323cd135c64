"""New weights for an engine whose tensors are shared by worker processes.

Tensors would not survive vLLM's calls between processes. So they travel as one file in memory that
has no name in any folder: it is gone with the process that made it, however that ends.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trinity_engine_vllm.weights import Loader, difference, repack_output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

__all__ = [
    "ANSWER_LIMIT",
    "EXTENSION",
    "ParallelLoader",
    "WorkerSide",
    "call_workers",
    "end_workers",
    "executor_of",
    "has_lost_a_worker",
    "segments",
    "spreads",
]

ANSWER_LIMIT = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"  # of workers; vLLM reads it for its steps
EXTENSION = "trinity_engine_vllm.tensor_parallel.WorkerSide"
_ANSWER_S = 300.0  # as vLLM has it, where nobody says how long
_GONE_S = 10.0  # so long the system may take to end a process
_SEGMENT = re.compile(r"/dev/shm/vllm_dist_\S+-cpushm_\d+$", re.MULTILINE)  # one with a name


def spreads(arguments: Mapping[str, Any]) -> bool:
    """Return whether an engine with these arguments of ``vllm.LLM`` has worker processes."""
    return int(arguments.get("tensor_parallel_size", 1)) > 1


def has_lost_a_worker(engine: Any) -> bool:  # Any: vLLM's
    """Return whether a worker process has ended that nobody ended."""
    executor = executor_of(engine)
    workers = getattr(executor, "workers", None) or ()  # others than vLLM's "mp" name none
    return getattr(executor, "is_failed", False) or not all(one.proc.is_alive() for one in workers)


def end_workers(engine: Any) -> None:  # Any: vLLM's
    """End the worker processes at once, also those that are stopped and hear of nothing."""
    for one in getattr(executor_of(engine), "workers", None) or ():
        one.proc.kill()
        one.proc.join(_GONE_S)


def executor_of(engine: Any) -> Any:  # Any: vLLM's
    """Return what has the worker processes."""
    return engine.engine_core.engine_core.model_executor


def call_workers(engine: Any, method: str, *args: Any) -> list[Any]:  # Any: vLLM's
    """Call a method of :class:`WorkerSide` in every worker; return what they answer.

    Raises:
        TimeoutError: one did not answer in the time that a step may take, too.
    """
    limit_s = float(os.environ.get(ANSWER_LIMIT, _ANSWER_S))
    answers: list[Any] = engine.collective_rpc(method, timeout=limit_s, args=args)
    return answers


class ParallelLoader(Loader):
    """Loads snapshots into worker processes, each of which takes its part of every tensor."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the weights; what vLLM keeps of texts, which the old ones made, is dropped.

        Raises:
            ModelError: they are of another model, or the output layer kept the old ones.
        """
        self._check_names(tensors)
        with _as_file(tensors) as self._path:
            super().load(tensors)

    def _replace(self, tensors: Iterator[tuple[str, Tensor]]) -> None:
        call_workers(self._engine, "trinity_load", self._path, self._is_cpu)

    def _differences(self, name: str, kept: Mapping[str, Tensor]) -> list[float]:
        return call_workers(self._engine, "trinity_difference", self._path, name)


class WorkerSide:
    """What vLLM adds to the worker of each process; called by name."""

    model_runner: Any  # Any: vLLM's
    reload_weights: Any

    def trinity_load(self, path: str, is_cpu: bool) -> None:  # noqa: FBT001 -- vLLM calls it
        """Take this worker's part of every tensor of a file."""
        self.reload_weights(weights_iterator=iter(_stored(path).items()))
        if is_cpu:
            repack_output(self.model_runner.get_model())

    def trinity_difference(self, path: str, name: str) -> float:
        """Return how far the output layer is from the embedding of this name in a file."""
        return difference(self.model_runner.get_model(), _stored(path)[name])

    def trinity_set_threads(self, num: int) -> None:
        """Compute with so many threads."""
        torch.set_num_threads(num)

    def trinity_unname_segments(self) -> None:
        """Take away the names of the memory that this worker shares with the others, on a CPU.

        All have opened it by now, and vLLM does not look for the names again. The memory is gone
        with the last worker, however that ends; with a name it would outlive those that are killed.
        """
        for path in segments(Path("/proc/self/maps").read_text(encoding="utf-8")):
            path.unlink(missing_ok=True)


def segments(maps: str) -> set[Path]:
    """Return the files in memory through which vLLM's workers on a CPU speak to each other.

    Args:
        maps: what a process has mapped, as ``/proc/PID/maps`` tells.
    """
    return {Path(found) for found in _SEGMENT.findall(maps)}


@contextmanager
def _as_file(tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Give the path of a file in memory that holds the tensors."""
    number = os.memfd_create("trinity-weights")
    try:
        with open(number, "wb", closefd=False) as file:
            torch.save({name: tensor.detach().cpu() for name, tensor in tensors.items()}, file)
        yield f"/proc/{os.getpid()}/fd/{number}"
    finally:
        os.close(number)


def _stored(path: str) -> dict[str, Tensor]:
    stored: dict[str, Tensor] = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    return stored
