"""Hand a few of a run's samples to its monitors and advisors.

    samples/from-<step>.bin --every monitor.sample_interval steps--> log_samples of those that can

They are read from their files, not from the experiences: over Ray these are in another process.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from trinity.common.value_checks import text_of
from trinity.runtime.observers import Observer
from trinity.runtime.plugin_adapter import abilities_in
from trinity.runtime.record.monitors import PATIENCE
from trinity.runtime.record.run_text import RunText
from trinity.runtime.record.sample_files import find_blocks, read_step
from trinity.runtime.record.samples import part_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.common.ports import Monitor
    from trinity.runtime.record.rundir import RunDir
    from trinity.runtime.record.sample_files import Sample

MAX_LETTERS = 4_000  # of a prompt, and of a response; the samples' files have all


logger = logging.getLogger(__name__)

MAX_LETTERS = 4_000  # of a prompt, and of a response; the samples' files have all


class NewestSamples:
    """Reads the samples of the last optimizer step from the files of a run.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}  # how far a file was looked through

    def of(self, step: int) -> list[Sample]:
        """Return those of the last step; empty: they were not kept."""
        for path in reversed(part_files(self._directory)):
            start = self._read.get(path, 0)
            if path.stat().st_size < start:  # cut back to a checkpoint
                start = 0
            places, _ = find_blocks(path, start=start)
            if places:
                last = places[-1]
                self._read[path] = last.offset
                return read_step(last) if last.head.step == step else []
        return []

    def rows(self, step: int) -> list[dict[str, Any]]:
        """Return them as advisors get them."""
        return as_advisors_get_them(self.of(step))


def as_advisors_get_them(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Return rows for `Observation.samples`."""
    return [
        {
            "eid": one.eid, "reward": one.reward, "advantage": one.advantage,
            "response": one.tokens[one.prompt_length :], "prompt_length": one.prompt_length,
            "is_cut": one.truncate_status is not None, "metrics": one.metrics,
        }
        for one in samples
    ]  # fmt: skip


class ShownSamples(Observer):
    """Gives monitors samples of every so many optimizer steps.

    Args:
        directory: of the run.
        interval: optimizer steps.
        count: samples a step, at most.
        monitors: of the trainer.
    """

    def __init__(
        self, directory: Path, *, interval: int, count: int, monitors: Sequence[Monitor]
    ) -> None:
        self._directory = directory
        self._interval = interval
        self._count = count
        self._monitors = monitors
        self._text: RunText | None = None
        self._newest = NewestSamples(directory)
        self._told: set[str] = set()  # monitors that failed; "": the samples could not be read
        self._num_failed_in_row: Counter[int] = Counter()

    @classmethod
    def of(
        cls, config: Config, monitors: Mapping[str, Sequence[Monitor]], *, rundir: RunDir
    ) -> ShownSamples | None:
        """Return what a configuration asks for; None: nothing, or no monitor can.

        Args:
            config: of the stage.
            monitors: by role.
            rundir: of the stage.
        """
        own, trainers = config.monitor, monitors["trainer"]
        if not own.sample_interval or not any(
            "samples" in abilities_in(one, "monitor") for one in trainers
        ):
            return None
        return cls(
            rundir.path, interval=own.sample_interval, count=own.num_samples, monitors=trainers
        )

    def record(self, role: str, metrics: Mapping[str, object], *, step: int) -> None:
        if role != "trainer" or step % self._interval:
            return
        try:
            rows = self._rows(self._newest.of(step)[: self._count])
        except Exception as error:  # noqa: BLE001 -- no run needs them
            self._tell(step, error)
            return
        for monitor in self._monitors if rows else ():
            self._show(monitor, rows, step=step)

    def _show(self, monitor: Monitor, rows: Sequence[Mapping[str, Any]], *, step: int) -> None:
        key = id(monitor)
        if self._num_failed_in_row[key] >= PATIENCE:
            return
        try:
            monitor.log_samples([dict(row) for row in rows], step=step)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- around one plugin
            self._num_failed_in_row[key] += 1
            self._tell(step, error, by=type(monitor).__qualname__)
            if self._num_failed_in_row[key] >= PATIENCE:
                logger.warning(
                    "the monitor %s failed %d times in a row and gets no more samples",
                    type(monitor).__qualname__, PATIENCE,
                )  # fmt: skip
        else:
            del self._num_failed_in_row[key]

    def _rows(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        if self._text is None:
            self._text = RunText.of(self._directory)
        return [
            {
                "eid": sample.eid,
                "reward": sample.reward,
                "advantage": sample.advantage,
                "prompt": self._written(sample.tokens[: sample.prompt_length]),
                "response": self._written(sample.tokens[sample.prompt_length :]),
            }
            for sample in samples
        ]

    def _written(self, tokens: Sequence[int]) -> str:
        if self._text is None:
            return ""
        text = self._text.decode(tokens)
        return text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]} ..."

    def _tell(self, step: int, error: BaseException, *, by: str = "") -> None:
        if by in self._told:
            return
        self._told.add(by)
        logger.warning(
            "the samples of step %d were not shown by %s: %s: %s. The run goes on; "
            "trinity experiences shows them.",
            step, f"the monitor {by}" if by else "any monitor",
            type(error).__name__, text_of(error),
        )  # fmt: skip
