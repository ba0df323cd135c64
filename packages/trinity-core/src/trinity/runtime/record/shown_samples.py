"""Show monitors a few of the samples that a run keeps: ``monitor.sample_interval``.

    samples/from-<step>.bin --> rows with their text --> log_samples of each monitor that can

The files are read, not the experiences: over Ray these are in another process. No run needs it:
what fails is told once, a monitor that fails
keeps nothing from the others, and the run goes on.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from trinity.runtime.record.metrics import PATIENCE
from trinity.runtime.record.run_text import RunText
from trinity.runtime.record.sample_files import find_blocks, part_files, read_step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trinity.common.config import Config
    from trinity.runtime.record.rundir import RunDir
    from trinity.runtime.record.sample_files import Place, Sample
    from trinity.runtime.roles import WholeMonitorRole

logger = logging.getLogger(__name__)

MAX_LETTERS = 4_000  # of a prompt, and of a response; the samples' files have all


class ShownSamples:
    """Gives monitors samples of every so many optimizer steps.

    Args:
        directory: of the run.
        interval: optimizer steps.
        count: samples a step, at most.
        monitors: of the trainer.
    """

    def __init__(
        self, directory: Path, *, interval: int, count: int, monitors: Sequence[WholeMonitorRole]
    ) -> None:
        self._directory = directory
        self._interval = interval
        self._count = count
        self._monitors = monitors
        self._text: RunText | None = None
        self._read: dict[Path, int] = {}  # how far a file was looked through
        self._told: set[str] = set()  # monitors that failed; "": the samples could not be read
        self._num_failed_in_row: Counter[int] = Counter()

    @classmethod
    def of(
        cls, config: Config, monitors: Mapping[str, Sequence[WholeMonitorRole]], *, rundir: RunDir
    ) -> ShownSamples | None:
        """Return what a configuration asks for; None: nothing, or no monitor can.

        Args:
            config: of the stage.
            monitors: by role.
            rundir: of the stage.
        """
        own, trainers = config.monitor, monitors["trainer"]
        if not own.sample_interval or not any(one.takes_samples for one in trainers):
            return None
        return cls(
            rundir.path, interval=own.sample_interval, count=own.num_samples, monitors=trainers
        )

    def trained(self, step: int) -> None:
        """Show what an optimizer step trained, if it is time."""
        if step % self._interval:
            return
        try:
            place = self._place_of(step)
            rows = [] if place is None else self._rows(read_step(place)[: self._count])
        except Exception as error:  # noqa: BLE001 -- no run needs them
            self._tell(step, error)
            return
        for monitor in self._monitors if rows else ():
            self._show(monitor, rows, step=step)

    def _show(
        self, monitor: WholeMonitorRole, rows: Sequence[Mapping[str, Any]], *, step: int
    ) -> None:
        key = id(monitor)
        if self._num_failed_in_row[key] >= PATIENCE:
            return
        try:
            monitor.log_samples([dict(row) for row in rows], step=step)
        except Exception as error:  # noqa: BLE001 -- the boundary around one plugin
            self._num_failed_in_row[key] += 1
            self._tell(step, error, by=monitor.name)
            if self._num_failed_in_row[key] >= PATIENCE:
                logger.warning(
                    "the monitor %s failed %d times in a row and gets no more samples",
                    monitor.name, PATIENCE,
                )  # fmt: skip
        else:
            del self._num_failed_in_row[key]

    def _place_of(self, step: int) -> Place | None:
        """Return where the newest block of a step lies; None: it was not kept."""
        for path in reversed(part_files(self._directory)):
            start = self._read.get(path, 0)
            if path.stat().st_size < start:  # cut back to a checkpoint
                start = 0
            places, _ = find_blocks(path, start=start)
            if places:
                last = places[-1]
                self._read[path] = last.offset + last.head.size
                if last.head.step == step:
                    return last
        return None

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

    def _tell(self, step: int, error: Exception, *, by: str = "") -> None:
        if by in self._told:
            return
        self._told.add(by)
        logger.warning(
            "the samples of step %d were not shown by %s: %s: %s. The run goes on; "
            "trinity experiences shows them.",
            step, f"the monitor {by}" if by else "any monitor",
            type(error).__name__, " ".join(str(error).split()),
        )  # fmt: skip
