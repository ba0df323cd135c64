"""Stop a run whose runs fail too often: counted over as many tasks as a batch has."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from trinity.explorer.groups import check_failures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trinity.explorer.requests import RolloutResult


class FailureWatch:
    """Counts the failed runs of each step, and of the tasks before it where the step is short.

    So one bad task in a last batch of one is one of many, and no reason to end the run.

    Args:
        num_tasks: that are counted together at least, where so many were run.
        max_failed_ratio: of their runs that may fail.
    """

    def __init__(self, *, num_tasks: int, max_failed_ratio: float) -> None:
        self._num_tasks = num_tasks
        self._max_failed_ratio = max_failed_ratio
        self._earlier: deque[tuple[int, int]] = deque(maxlen=num_tasks)

    def check(self, results: Sequence[RolloutResult]) -> None:
        """Take a look at what there is of a step.

        Raises:
            RunFailedError: too many of these runs failed, those of earlier tasks counted in.
        """
        num_missing = max(0, self._num_tasks - len(_counts_by_task(results)))
        first = max(0, len(self._earlier) - num_missing)
        check_failures(
            results,
            max_failed_ratio=self._max_failed_ratio,
            earlier=list(self._earlier)[first:],
        )

    def is_enough(self, results: Sequence[RolloutResult]) -> bool:
        """Return whether these and the earlier tasks are as many as are counted together."""
        return len(self._earlier) + len(_counts_by_task(results)) >= self._num_tasks

    def note(self, results: Sequence[RolloutResult]) -> None:
        """Take the tasks of a step that ended as the ones before the next step."""
        self._earlier.extend(_counts_by_task(results))

    def state_dict(self) -> list[list[int]]:
        """Return the number of runs and of failed runs for each of the last tasks."""
        return [list(counts) for counts in self._earlier]

    def load_state_dict(self, state: Iterable[Sequence[int]]) -> None:
        """Go on from there."""
        self._earlier.clear()
        self._earlier.extend((num_runs, num_failed) for num_runs, num_failed in state)


def _counts_by_task(results: Iterable[RolloutResult]) -> list[tuple[int, int]]:
    """Return the number of runs and of failed runs of each task, in the tasks' order."""
    counts: dict[int, tuple[int, int]] = {}
    for result in results:
        num_runs, num_failed = counts.get(result.order.key.task, (0, 0))
        num_runs += result.order.num_runs
        num_failed += result.order.num_runs if result.failure is not None else 0
        counts[result.order.key.task] = num_runs, num_failed
    return [counts[task] for task in sorted(counts)]
