"""The samples of evaluations: a file for each, beside those of train steps."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from trinity.runtime.record.samples import PART_FILES, encode, sample_columns, sample_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity.common.experience import Experience

logger = logging.getLogger(__name__)

EVALUATIONS = "evaluations"
BENCH = "bench"


class EvaluationLog:
    """Writes the samples of evaluations, a file for each; never raises.

    An evaluation that is made again after a kill replaces its file. Ids are
    ``step/task/run/step of the run``, so that those of a task are together as in training.

    Args:
        directory: of the run.
        limit: bytes of all evaluations; the oldest goes first.
        is_bench: whether these are checkpoints, by train steps.
    """

    def __init__(self, directory: Path, *, limit: int, is_bench: bool) -> None:
        self._directory, self._limit, self._is_bench = directory, limit, is_bench

    def evaluated(self, step: int, taskset: str, experiences: Sequence[Experience]) -> None:
        """Keep the rollouts of an evaluation."""
        try:
            rows = sample_rows(experiences)
            for row, experience in zip(rows, experiences, strict=True):
                eid = replace(experience.eid, batch=step)
                row["eid"] = eid.uid
            block = encode(step, rows, sample_columns(experiences, None))
            self._free_space(len(block))
            path = evaluation_file(self._directory, taskset, step=step, is_bench=self._is_bench)
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_suffix(".tmp")
            scratch.write_bytes(block)
            scratch.replace(path)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the run goes on
            logger.warning("the samples of an evaluation are not kept: %s", error)

    def _free_space(self, size: int) -> None:
        kept = [(one.path, one.path.stat().st_size) for one in evaluation_files(self._directory)]
        while kept and sum(size for _, size in kept) + size > self._limit:
            kept.pop(0)[0].unlink()


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationFile:
    """The samples of one evaluation; `find_blocks` gives the place of its only block."""

    taskset: str
    step: int  # explore step; with is_bench: train step
    is_bench: bool
    path: Path


def evaluation_file(directory: Path, taskset: str, *, step: int, is_bench: bool) -> Path:
    """Return where the samples of an evaluation belong."""
    folder = directory / (BENCH if is_bench else EVALUATIONS) / quote(taskset, safe=" ")
    return folder / f"from-{step:08d}.bin"


def evaluation_files(directory: Path) -> list[EvaluationFile]:
    """Return the evaluations whose samples a run directory has, the oldest first."""
    found = [
        EvaluationFile(
            taskset=unquote(path.parent.name),
            step=int(path.stem.removeprefix("from-")),
            is_bench=folder == BENCH,
            path=path,
        )
        for folder in (EVALUATIONS, BENCH)
        for path in (directory / folder).glob(f"*/{PART_FILES}")
        if path.stem.removeprefix("from-").isdigit()
    ]
    return sorted(found, key=lambda one: (one.is_bench, one.step, one.taskset))
