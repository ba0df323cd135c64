"""The tasks of a run, in order: the rows of all training tasksets, epoch after epoch."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from trinity.buffer.row_checks import check_rows
from trinity.buffer.row_files import load_rows
from trinity.common.value_checks import without_end
from trinity.common.workflows import Task
from trinity.errors import CheckpointError, DataError
from trinity.extend import KINDS, get_manager

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trinity.common.config import Config, TasksetConfig
    from trinity.common.ports import RowValues, TaskSelector
    from trinity.extend import Component


class Taskset:
    """Makes a task of each row of a dataset.

    Args:
        config: the resolved section: the path, the keys, the workflow.
        repeat_times: runs of each task; None: what the section says (evaluation).
        is_eval: whether these tasks evaluate.
        taskset_id: the number of the taskset among its like.
        setting: where the section stands in the configuration, for messages.

    Raises:
        DataError: the dataset cannot be read, or a row lacks a configured key.
    """

    def __init__(
        self,
        config: TasksetConfig,
        *,
        repeat_times: int | None = None,
        is_eval: bool = False,
        taskset_id: int = 0,
        setting: str = "buffer.explorer_input.taskset",
    ) -> None:
        self.config = config
        self.name = config.name or setting.rpartition(".")[2]
        self.repeat_times = config.repeat_times if repeat_times is None else repeat_times
        self.is_eval = is_eval
        self.taskset_id = taskset_id
        self.rows = load_rows(
            config.path,
            split=config.split,
            subset_name=config.subset_name,
            setting=f"{setting}.path",
        )
        check_rows(self.rows, config.format, name=self.name)

    def __len__(self) -> int:
        return len(self.rows)

    def task(self, number: int) -> Task:
        """Return the task of a row."""
        config, row = self.config, self.rows[number]
        return Task(
            workflow=_named(row, config.format.workflow_key)
            or config.default_workflow_type
            or "simple_workflow",
            reward_fn=_named(row, config.format.reward_fn_key) or config.default_reward_fn_type,
            raw_task=row,
            format_args=config.format,
            rollout_args=config.rollout_args.model_copy(update={"n": self.repeat_times}),
            workflow_args=config.workflow_args,
            reward_fn_args=config.reward_fn_args,
            repeat_times=self.repeat_times,
            is_eval=self.is_eval,
            index={"taskset_id": self.taskset_id, "index": number},
            origin=str(self.rows.origin(number)),
        )

    def column(self, key: str) -> list[float]:
        """Return a column of numbers, such as a pass rate of each row.

        Raises:
            DataError: a row has no number there.
        """
        values = []
        for number in range(len(self)):
            value = self.rows[number].get(key)
            if not isinstance(value, (int, float)):
                raise DataError(
                    f"{self.rows.origin(number)} has no number in column {key!r}, which "
                    f"feature_keys of the taskset {self.name} names; it has {value!r}."
                )
            values.append(float(value))
        return values

    def tasks(self) -> list[Task]:
        return [self.task(number) for number in range(len(self))]


def _named(row: dict[str, Any], key: str) -> str | None:
    return row.get(key) if key else None


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
        self._ends_by_tasks = self._total_steps is None and config.trainer.total_steps is None
        self._num_tasks = len(self) * config.buffer.total_epochs
        self._position = 0
        self._kept: tuple[int, list[int]] = (-1, [])

    def __len__(self) -> int:
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
            without_end(listener.feedback, rows.indices, rows.values)

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the epochs, and that of each selector."""
        return {
            "position": self._position,
            "batch_size": self._batch_size,
            "selectors": [selector.state_dict() for selector in self._selectors],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position.

        Raises:
            CheckpointError: the run would end before its tasks do: it counts steps, not tasks.
        """
        left, then = self._num_tasks - state["position"], state.get("batch_size", 0)
        made = -(-state["position"] // then) if then else 0
        needed = made + -(-left // self._batch_size)
        is_larger = then < self._batch_size and left > 0
        if self._ends_by_tasks and is_larger and needed > self.num_steps:
            raise CheckpointError(
                f"the checkpoint was made with buffer.batch_size {then}, and now it is "
                f"{self._batch_size}: the run would end at step {self.num_steps}, {made} steps are "
                f"made, and {left} tasks are left. Set it back, or set buffer.total_steps to "
                f"{needed}."
            )
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
            number: self._rows(number, numbers.count(number)) for number in sorted(set(numbers))
        }
        return [self.tasksets[number].task(next(rows[number])) for number in numbers]

    def _rows(self, number: int, count: int) -> Iterator[int]:
        """Return the next rows of a taskset, as its selector chooses them."""
        rows = list(map(int, without_end(self._selectors[number].get_indices, count)))
        if len(rows) != count:
            taskset = self.tasksets[number]
            raise DataError(
                f"the selector {taskset.config.data_selector.selector_type} of the taskset "
                f"{taskset.name} gave {len(rows)} rows, asked for {count}. Let its get_indices "
                "return that many."
            )
        return iter(rows)

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
    return KINDS["task_selector"].can(_named_selector(taskset), "feedback")


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
