"""The tasks of a run, in order: the rows of all training tasksets, epoch after epoch."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from trinity.buffer.taskset import Taskset
from trinity.errors import DataError
from trinity.extend import KINDS, get_manager

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.config import Config, TasksetConfig
    from trinity.common.ports import RowValues, TaskSelector
    from trinity.common.workflows import Task
    from trinity.extend import Component


class TaskSource:
    """Gives the training tasks of a resolved configuration.

    Several tasksets are mixed by a permutation that is a function of seed and epoch; each gives its
    rows in the order of its own selector.

    Raises:
        DataError: a dataset cannot be read.
    """

    def __init__(self, config: Config) -> None:
        sections = training_sections(config)
        single = len(sections) == 1 and config.buffer.explorer_input.taskset is not None
        self.tasksets = [
            Taskset(
                section,
                repeat_times=config.algorithm.repeat_times or 1,
                taskset_id=number,
                setting=f"buffer.explorer_input.{'taskset' if single else f'tasksets[{number}]'}",
            )
            for number, section in enumerate(sections)
        ]
        self._selectors = [
            _selector(taskset, default_seed=config.seed) for taskset in self.tasksets
        ]
        self._listening = [_listens(taskset) for taskset in self.tasksets]
        self._seed = config.seed
        self._batch_size = config.buffer.batch_size
        self._total_steps = config.buffer.total_steps
        self._num_tasks = len(self) * config.buffer.total_epochs
        self._position = 0
        self._kept: tuple[int, list[int]] = (-1, [])

    def __len__(self) -> int:
        """Return the number of tasks of one epoch."""
        return sum(len(taskset) for taskset in self.tasksets)

    @property
    def num_steps(self) -> int:
        """Return the explore steps of the run; a last short one counts."""
        if self._total_steps is not None:
            return self._total_steps
        return -(-self._num_tasks // self._batch_size)

    def read(self, count: int) -> list[Task]:
        """Return the next tasks, fewer only at the end of the last epoch.

        With ``buffer.total_steps`` there is no last epoch.

        Raises:
            StopIteration: all epochs are over.
        """
        if self._total_steps is None:
            count = min(count, self._num_tasks - self._position)
            if count <= 0:
                raise StopIteration
        return self._next(count)

    def again(self, index: Mapping[str, int]) -> Task:
        """Return a task that was read before, by its ``index``; the order does not change."""
        return self.tasksets[index["taskset_id"]].task(index["index"])

    def feedback(self, outcomes: Mapping[str, RowValues]) -> None:
        """Tell the selectors that want to know how tasks of theirs went.

        Raises:
            DataError: an operator names rows that the taskset does not have.
        """
        for number, taskset in enumerate(self.tasksets):
            rows = outcomes.get(str(number))
            if rows is None or not self._listening[number]:
                continue
            unknown = [row for row in rows.indices if not 0 <= row < len(taskset)]
            if unknown:
                raise DataError(
                    f"an operator tells how row {unknown[0]} of the taskset {taskset.name} went, "
                    f"which has {len(taskset)} rows. Take the number from "
                    'experience.info["task_index"]["index"].'
                )
            listener: Any = self._selectors[number]  # Any: TaskFeedback, as its ability says
            listener.feedback(rows.indices, rows.values)

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the epochs, and that of each selector."""
        return {
            "position": self._position,
            "selectors": [selector.state_dict() for selector in self._selectors],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position."""
        self._position = state["position"]
        for selector, own in zip(self._selectors, state["selectors"], strict=True):
            selector.load_state_dict(own)

    def _next(self, count: int) -> list[Task]:
        """Return the next tasks; a selector chooses those of its set together."""
        numbers = []
        for position in range(self._position, self._position + count):
            epoch, place = divmod(position, len(self))
            numbers.append(self._mix(epoch)[place])
        self._position += count
        rows = {
            number: iter(map(int, self._selectors[number].get_indices(numbers.count(number))))
            for number in sorted(set(numbers))
        }
        return [self.tasksets[number].task(next(rows[number])) for number in numbers]

    def _mix(self, epoch: int) -> list[int]:
        """Return which taskset each task of the epoch is of."""
        if self._kept[0] != epoch:
            numbers = np.repeat(np.arange(len(self.tasksets)), [len(t) for t in self.tasksets])
            mixed = np.random.default_rng(self._seed + epoch).permutation(numbers)
            self._kept = (epoch, mixed.tolist())
        return self._kept[1]


def build_evaluation_sets(config: Config) -> list[Taskset]:
    """Return the evaluation tasksets of a resolved configuration.

    Raises:
        DataError: a dataset cannot be read.
    """
    return [
        Taskset(
            section,
            is_eval=True,
            taskset_id=number,
            setting=f"buffer.explorer_input.eval_tasksets[{number}]",
        )
        for number, section in enumerate(config.buffer.explorer_input.eval_tasksets)
    ]


def training_sections(config: Config) -> list[TasksetConfig]:
    """Return the sections of the training tasksets, the single one folded in."""
    given = config.buffer.explorer_input
    sections = list(given.tasksets)
    if given.taskset is not None and given.taskset not in sections:
        sections.insert(0, given.taskset)
    return sections


def _named_selector(taskset: Taskset) -> Component:
    name = taskset.config.data_selector.selector_type or "sequential"
    return get_manager().find("task_selector", name)


def _listens(taskset: Taskset) -> bool:
    """Return whether the selector wants to know how tasks went."""
    return "feedback" in KINDS["task_selector"].abilities_of(_named_selector(taskset))


def _selector(taskset: Taskset, *, default_seed: int) -> TaskSelector:
    chosen = taskset.config.data_selector
    cls = _named_selector(taskset).load()
    given = {}
    if "features" in inspect.signature(cls).parameters:
        given["features"] = {key: taskset.column(key) for key in chosen.feature_keys}
    seed = default_seed if chosen.seed is None else chosen.seed
    try:
        selector: TaskSelector = KINDS["task_selector"].made(
            cls, chosen.kwargs, num_rows=len(taskset), seed=seed, **given
        )
    except ValueError as error:
        raise DataError(f"{taskset.name}: {error}") from error
    return selector
