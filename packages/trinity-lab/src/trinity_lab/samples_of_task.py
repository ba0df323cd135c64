"""The samples of a task, or of all, as a run's files have them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trinity.errors import DataError
from trinity.runtime.record.sample_files import read_rows, read_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.runtime.record.sample_files import Place, Sample


def samples_of(places: list[Place], *, task: str) -> Iterator[list[Sample]]:
    """Give the samples of each step that has some, those of one task where it is named.

    Args:
        places: of the steps.
        task: ``batch/task``, or with further parts of the id; empty: all.

    Raises:
        DataError: a block is damaged.
    """
    for place in places:
        try:
            samples = _of_place(place, task)
        except DataError as error:
            raise DataError(
                f"{place.path}: {error} Put the file back from a copy; its other steps can be read."
            ) from error
        if samples:
            yield samples


def _of_place(place: Place, task: str) -> list[Sample]:
    if task and not any(_is_of(row["eid"], task) for row in read_rows(place)):
        return []
    return [one for one in read_step(place) if not task or _is_of(one.eid, task)]


def _is_of(eid: str, task: str) -> bool:
    task_of_group = re.sub(r"^([^/]*/[^/-]+)-[^/]*", r"\1", eid)  # 1/0-solver is of task 1/0
    return any(f"{name}/".startswith(f"{task}/") for name in (eid, task_of_group))
