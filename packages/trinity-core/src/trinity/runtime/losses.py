"""Count the processes that a run loses, and give up where starting anew does not help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import RunFailedError

if TYPE_CHECKING:
    from trinity.errors import WorkerLostError

MAX_RESTARTS = 3  # without a new checkpoint in between


class LossCounter:
    """How often the workers of a stage were lost since its last checkpoint."""

    def __init__(self) -> None:
        self._place = ""
        self._num_lost = 0
        self._num_killed = _num_killed_for_memory()

    def lost(self, error: WorkerLostError, *, place: str) -> str:
        """Return what to say before the workers are started anew from ``place``.

        Raises:
            RunFailedError: it was tried often enough.
        """
        if place != self._place:
            self._place, self._num_lost = place, 0
        self._num_lost += 1
        cause = f"{error.cause.rstrip('.')}{self._memory()}"
        if self._num_lost > MAX_RESTARTS:
            raise RunFailedError(
                f"the process of {error.worker} was lost, the {self._num_lost}th loss since "
                f"{place}: {cause}. The workers were started anew {MAX_RESTARTS} times, which did "
                f"not help. logs/{error.worker}.log in the run directory has its last lines. "
                f"Correct that, then run the same command: it goes on from {place}."
            ) from error
        return (
            f"the process of {error.worker} was lost ({cause}): all workers are started anew and "
            f"go on from {place} (restart {self._num_lost} of {MAX_RESTARTS})"
        )

    def _memory(self) -> str:
        """Return that the system ended a process for lack of memory, if it did since last time."""
        before, self._num_killed = self._num_killed, _num_killed_for_memory()
        if self._num_killed <= before:
            return ""
        return (
            "; the system killed a process for lack of memory: lower "
            "trainer.max_token_len_per_gpu, explorer.runner_per_model or the model's size"
        )


def _num_killed_for_memory() -> int:
    """Return how many processes the kernel killed for lack of memory, where it tells."""
    for path in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        counts = dict(line.split() for line in lines)
        if "oom_kill" in counts:
            return int(counts["oom_kill"])
    return 0
