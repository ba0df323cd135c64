"""The rollouts that a run kept, with the task of each.

buffer/explorer_output.jsonl --> rows --> rollouts: the rows of one execution of a workflow
buffer.explorer_input.tasksets, info["task_index"] --> Task
served_tasks.py, evaluated_rollouts.py: the same of a service, and of an evaluation
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from trinity.buffer.step_file import older_half
from trinity.buffer.task_source import Taskset, training_sections
from trinity.common.config import Config
from trinity.common.config.kept import kept_settings
from trinity.common.experience import Experience
from trinity.errors import ConfigError, DataError, TrinityError
from trinity.runtime.record.rundir import with_stages

from trinity_lab.run_folders import runs_inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trinity.common.config import TasksetConfig
    from trinity.common.workflows import Task


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One execution of a workflow.

    Attributes:
        rows: its experiences, by step; at least one, and the last one's response is scored.
        task: that it was made for.
    """

    rows: Sequence[Experience]
    task: Task

    @property
    def last(self) -> Experience:
        """Return the row of the last step."""
        return self.rows[-1]


@dataclass(frozen=True, kw_only=True)
class KeptRun:
    """A run directory whose rollouts can be scored again.

    Attributes:
        directory: of the run, or of its last stage.
        settings: as it kept them (Any: yaml).
        config: the same, as a model.
    """

    directory: Path
    settings: dict[str, Any]
    config: Config

    @classmethod
    def at(cls, directory: Path) -> KeptRun:
        """Return the run of a folder.

        Raises:
            ConfigError: it holds no run.
        """
        found = with_stages(directory)[-1]
        try:
            read = yaml.safe_load((found / "config.yaml").read_text(encoding="utf-8"))
            settings = kept_settings(read, found)
            config = Config.model_validate(settings)
        except (OSError, ValueError, yaml.YAMLError) as error:
            shown = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise ConfigError(
                f"{found} holds no run whose settings can be read: config.yaml: {shown}."
                f"{runs_inside(found)}"
            ) from error
        return cls(directory=found, settings=settings, config=config)

    @property
    def is_served(self) -> bool:
        """Return whether agents elsewhere made its rollouts."""
        return self.config.mode == "serve"

    def rollouts(self, find: Callable[[Experience], Task] | None = None) -> list[Rollout]:
        """Return what it sampled to train on; of a rollout that was made again, the last.

        Args:
            find: gives the task of a row; None: `Tasks` of its training tasksets.

        Raises:
            ConfigError: it kept no rollouts.
            DataError: a line is damaged, a row has no task, or a taskset cannot be read.
        """
        find = find or Tasks(training_sections(self.config)).of
        return in_rollouts((row for path in self._files() for row in _read(path)), find)

    def _files(self) -> list[Path]:
        """Return the files that hold the rollouts, the older first."""
        named = self.config.data_processor.experience_pipeline.input_save_path
        path = Path(named or self.directory / "buffer" / "explorer_output.jsonl")
        files = [one for one in (older_half(path), path) if one.is_file()]
        if not files:
            raise ConfigError(
                f"{self.directory} kept no rollouts: there is no {path}. A run writes it unless "
                f"data_processor.experience_pipeline.save_input is false, or its mode is train. "
                f"For the rollouts of an evaluation, name its taskset: --eval NAME."
            )
        return files


def in_rollouts(rows: Iterable[Experience], find: Callable[[Experience], Task]) -> list[Rollout]:
    """Return rows by explore step, task and run; of equal ids the last row counts.

    Args:
        rows: in the order in which they were written.
        find: gives the task of a row.
    """
    by_rollout: dict[str, list[Experience]] = {}
    for row in {row.eid.uid: row for row in rows}.values():
        by_rollout.setdefault(row.eid.rid, []).append(row)
    made = [
        Rollout(rows=(own := sorted(some, key=lambda one: one.eid.step)), task=find(own[0]))
        for some in by_rollout.values()
    ]
    return sorted(made, key=_place)


class Tasks:
    """Finds the task of a row; reads a taskset once.

    Args:
        sections: of the tasksets, in the order of their numbers.
    """

    def __init__(self, sections: Sequence[TasksetConfig]) -> None:
        self._sections = sections
        self._read: dict[int, Taskset] = {}

    def of(self, row: Experience) -> Task:
        """Return the task that a row was sampled for.

        Raises:
            DataError: it does not say which, or the taskset does not have it.
        """
        index = row.info.get("task_index") or {}
        number, place = index.get("taskset_id"), index.get("index")
        if not isinstance(number, int) or not isinstance(place, int):
            raise DataError(
                f"rollout {row.eid.rid} does not say which row of a taskset it is of, so its truth "
                f"is unknown."
            )
        if number >= len(self._sections):
            raise DataError(
                f"rollout {row.eid.rid} is of taskset {number}, and config.yaml has "
                f"{len(self._sections)}."
            )
        if number not in self._read:
            self._read[number] = Taskset(self._sections[number], taskset_id=number)
        taskset = self._read[number]
        if place >= len(taskset):
            raise DataError(
                f"rollout {row.eid.rid} is of row {place + 1} of {taskset.config.path}, which has "
                f"{len(taskset)} rows now. Put the file back as it was in the run."
            )
        return taskset.task(place)


def _read(path: Path) -> Iterator[Experience]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield Experience.from_dict(json.loads(line))
            except (ValueError, TypeError, TrinityError) as error:
                if not line.endswith("\n"):
                    return  # being written, or cut off by a kill
                raise DataError(
                    f"{path}, line {number}, is no experience: {error}. Remove the line."
                ) from error


def _place(rollout: Rollout) -> tuple[tuple[int, int | str], ...]:
    eid = rollout.last.eid
    return tuple(
        (0, one) if isinstance(one, int) else (1, str(one))
        for one in (eid.batch, eid.task, eid.run)
    )
