"""What ``run.json`` says of a stage, from its first line to its last."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from trinity.common.value_checks import text_of
from trinity.runtime.determinism import LEAST, Determinism, determinism_of
from trinity.runtime.observers import counts_of
from trinity.runtime.record.checkpoint import CheckpointStore
from trinity.runtime.record.progress import Progress
from trinity.runtime.record.restart import plots_of, settings_of
from trinity.runtime.record.result import RunStatus, StageResult
from trinity.runtime.selection import Selection
from trinity.starting import num_restarts

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.common.metrics import Metrics
    from trinity.runtime.display import Display
    from trinity.runtime.parts import Parts
    from trinity.runtime.record.rundir import RunDir

logger = logging.getLogger(__name__)


class StageRecord:
    """Notes how a stage stands, and writes it down.

    Args:
        config: of the stage.
        rundir: of the stage.
        display: where changes are said.
        before: what an earlier start wrote (Any: json); empty: there was none.
        stage: its name; "": a run without stages.

    Attributes:
        parts: the workers that it has now; None: it did not begin.
        progress: how far it is.
        status: None: it did not begin.
        found: what the audit found (Any: json).
        advice: what advisors found.
    """

    def __init__(
        self,
        config: Config,
        *,
        rundir: RunDir,
        display: Display,
        before: dict[str, Any],
        stage: str,
    ) -> None:
        self._config, self._rundir, self._display = config, rundir, display
        self._before, self._stage = before, stage
        self.parts: Parts | None = None
        self.progress = Progress()
        self.status: RunStatus | None = None
        # After which no two runs of a seed are equal; None: they are, as far as the style goes.
        self._timed_out_step: int | None = before.get("timed_out_step")
        self.found: list[dict[str, Any]] = list(before.get("audit", []))
        self.advice: list[dict[str, Any]] = list(before.get("findings", []))
        self._began = time.perf_counter()

    def note_time_out(self, step: int) -> None:
        """Take back that two runs of a seed are equal: which rollout is late, a machine decides."""
        if self._guarantee() != LEAST:
            self._timed_out_step = step
            self._display.say(
                f"a rollout of explore step {step} was dropped because its time was up: two runs "
                f"of a seed have the {LEAST} from here on. Raise explorer.max_timeout to keep more."
            )
            self.write()

    def say_findings(self) -> None:
        """Show what the audit found last, and write it down."""
        last = self.found[-1]
        self._display.say(f"audit ({last['check']}): {last['message']}. Look at {last['parts']}.")
        self.write()

    def write(self, *, error: str = "") -> None:
        assert self.parts is not None
        assert self.status is not None
        progress = self.progress
        status = {
            "status": self.status.value,
            "stage": self._stage,
            "mode": self._config.mode,
            "asked": settings_of(self._config),
            "explore_steps": progress.explore_steps,
            "train_steps": progress.train_steps,
            "trained_experiences": progress.trained_experiences,
            "total_steps": self.parts.total_steps,
            "guarantee": self._guarantee(),
            **({"timed_out_step": self._timed_out_step} if self._timed_out_step else {}),
            **({"restarts": num_restarts()} if num_restarts() else {}),
            "seconds": float(self._before.get("seconds", 0.0)) + self._seconds(),
            "first_evaluation": progress.first_evaluation,
            "evaluation": progress.evaluation,
            **({"best": progress.best} if progress.best else {}),
            **({"better_before": before} if (before := self._better_before()) is not None else {}),
            **self._failed_attempts(),
            "buffer": self._counts(),
            **({"audit": self.found} if self.found else {}),
            **({"findings": self.advice} if self.advice else {}),
            "error": error,
        }
        logger.info(
            "%s %s: explore step %d, train step %d%s",
            f"stage {self._stage}" if self._stage else "run", self.status.value,
            progress.explore_steps, progress.train_steps,
            " ".join(f": {error}".split()) if error else "",
        )  # fmt: skip
        self._rundir.write_status(status, mode=self._config.mode)

    def fail(self, error: BaseException) -> None:
        is_stopped = isinstance(error, KeyboardInterrupt)
        self.status = RunStatus.INTERRUPTED if is_stopped else RunStatus.FAILED
        try:
            self.end(error=f"{type(error).__name__}: {text_of(error)}")
        except OSError as full:  # the error itself is what the user must see
            logger.warning("run.json could not be written: %s", full)

    def end(self, *, error: str = "") -> None:
        assert self.parts is not None
        try:
            self.write(error=error)
        finally:
            self.parts.manager.call("trinity_run_finished", run=self.parts.info)

    def outcome(self) -> StageResult:
        """Return the end of the stage, after :meth:`run`."""
        assert self.status is not None
        latest = CheckpointStore(self._rundir.path).latest()
        return StageResult(
            name=self._stage,
            status=self.status,
            directory=self._rundir.path,
            explore_steps=self.progress.explore_steps,
            train_steps=self.progress.train_steps,
            seconds=self._seconds(),
            first_evaluation=self.progress.first_evaluation,
            evaluation=self.progress.evaluation,
            evaluated_step=self.progress.evaluated_step,
            buffer=self._counts(),
            checkpoint=latest.path if latest else None,
            best=tuple(self.progress.best),
            better_before=self._better_before(),
            **self._failed_attempts(),
            plots=plots_of(self._rundir, title=self._config.name),
        )

    def _better_before(self) -> float | None:
        return Selection(self._config).better_before(self.progress)

    def _failed_attempts(self) -> dict[str, Any]:
        """Return how many attempts at rollouts failed, and the first; empty: none did."""
        if self.parts is None or self.parts.explorer is None:
            return {}
        failed = self.parts.explorer.failed_attempts
        return (
            {"failed_attempts": failed.count, "first_failure": failed.first} if failed.count else {}
        )

    def _counts(self) -> Metrics:
        storage = None if self.parts is None else self.parts.storage
        return {} if storage is None else counts_of(storage)

    def _guarantee(self) -> Determinism:
        assert self.parts is not None
        has_timed_out = self._timed_out_step is not None
        return LEAST if has_timed_out else determinism_of(self._config, self.parts.manager)

    def _seconds(self) -> float:
        return time.perf_counter() - self._began
