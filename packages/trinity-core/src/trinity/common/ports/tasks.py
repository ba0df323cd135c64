"""Where tasks come from, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.workflows.task import Task


@dataclass(frozen=True, kw_only=True, slots=True)
class RowValues:
    """How the tasks of some rows of a taskset went: a pass rate each, for instance."""

    indices: list[int]
    values: list[float]  # as many, finite


class TaskSelector(Protocol):
    """Gives the numbers of the rows of a taskset, without an end.

    It is made with ``num_rows``, ``seed`` and, if its constructor names it, ``features``.
    """

    def get_indices(self, count: int) -> list[int]:
        """Return the next row numbers, each from 0 to ``num_rows - 1``."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position, as json can hold it."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position."""


class TaskReader(Protocol):
    """Gives the training tasks, in order."""

    @property
    def num_steps(self) -> int:
        """Return the explore steps of the run."""

    def again(self, index: Mapping[str, int]) -> Task:
        """Return a task that was read before, by its ``index``; the order does not change."""

    def read(self, count: int) -> list[Task]:
        """Return the next tasks, fewer only at the end of the last epoch.

        Raises:
            StopIteration: all epochs are over.
        """

    def feedback(self, outcomes: Mapping[str, RowValues]) -> None:
        """Hand on how tasks went, by the number of their taskset; it is part of the state."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position."""


class EvaluationSet(Protocol):
    """Gives the tasks of one evaluation, each to be run ``repeat_times`` times."""

    @property
    def name(self) -> str:
        """Return the name in metrics."""

    @property
    def repeat_times(self) -> int:
        """Return k of ``mean@k``."""

    def tasks(self) -> list[Task]:
        """Return all tasks, in order."""
