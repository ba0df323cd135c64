"""Tasks of one dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.buffer.rows import Rows, load_rows
from trinity.common.config import FormatConfig
from trinity.common.row_keys import no_such_key
from trinity.common.rows import NO_CELL, cell
from trinity.common.workflows.task import Task
from trinity.errors import DataError

if TYPE_CHECKING:
    from trinity.common.config import TasksetConfig

_DEFAULTS = FormatConfig()


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
        for name in ("prompt_key", "response_key"):
            _check_key(self.rows, getattr(config.format, name), setting=name)

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
        """Return the tasks of all rows, in order."""
        return [self.task(number) for number in range(len(self))]


def _named(row: dict[str, Any], key: str) -> str | None:
    return row.get(key) if key else None


def _check_key(rows: Rows, key: str, *, setting: str) -> None:
    """Raise for the first row without the key, if any row has it or somebody asked for it.

    A workflow that reads its rows by itself needs no key, so the default key may be missing from
    all rows.
    """
    without = _rows_without(rows, key)
    is_asked_for = key != getattr(_DEFAULTS, setting)
    if without and (is_asked_for or len(without) < len(rows)):
        number = without[0]
        origin = str(rows.origin(number))
        raise DataError(no_such_key(origin, key=key, row=rows[number], setting=setting))


def _rows_without(rows: Rows, key: str) -> list[int]:
    if rows.columns is not None and (key in rows.columns or "." not in key):
        return [] if key in rows.columns else list(range(len(rows)))
    return [number for number in range(len(rows)) if cell(rows[number], key) is NO_CELL]
