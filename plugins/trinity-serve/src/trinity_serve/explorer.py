"""The explorer of a service: agents outside make the runs, it takes those that were committed.

front --wake--> wait --due--> taken --> experiences --pipeline--> buffer
                  |
                  +--silent runs are dropped
"""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from trinity.common.experience import EID
from trinity.common.metrics import aggregate
from trinity.errors import DataError
from trinity.explorer.explorer import ExploreResult
from trinity.explorer.groups import FailedAttempts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports import ExperienceProcessor

    from trinity_serve.ports import DueRun, Front, RunStore

logger = logging.getLogger("trinity.serve")

LOOKS_EVERY_S = 0.5
FORGETS_EVERY_S = 60.0
# What the names of tasks and agents cannot hold, so that no two groups are called the same.
NO_TASK = "@committed"
BETWEEN = ":"
SHOWN = 5  # names in a warning


class ServedExplorer:
    """Takes what was committed; each commit is an explore step.

    A run is taken in the step that the store notes. A run of Trinity that goes on from a checkpoint
    first makes due again what later steps took: so each is trained once in the weights that stay.

    Args:
        front: what agents ask; closed with this.
        store: of their runs; closed with this.
        pipeline: takes the experiences.
        max_silence_s: a run without a reward is dropped after so long without a call.
        forget: lets the store forget what is over, and returns whether there may be more of it.
        is_stopping: whether the service was asked to stop.
    """

    def __init__(
        self,
        *,
        front: Front,
        store: RunStore,
        pipeline: ExperienceProcessor,
        max_silence_s: float,
        forget: Callable[[], bool],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._front = front
        self._store = store
        self._pipeline = pipeline
        self._max_silence_s = max_silence_s
        self._forget = forget
        self._forgets_at = 0.0  # monotonic seconds
        self._is_stopping = is_stopping
        self._is_open = False
        self.failed_attempts = FailedAttempts()  # none: agents elsewhere make the rollouts

    def explore_step(self, step: int) -> ExploreResult:
        """Wait for a commit and hand on the runs of it.

        Raises:
            StopIteration: the service was asked to stop.
            DataError: the store cannot be read or written, or a commit not be processed.
        """
        if not self._is_open:
            lost = self._store.rewind(step - 1)
            if lost:
                logger.warning(
                    "%d rewards were trained after this checkpoint, but their replies have been "
                    "deleted (explorer.keep_runs_s): they are not trained again.",
                    lost,
                )
            self._front.open()
            self._is_open = True
        self._look_after()  # also where commits wait, step after step
        processed: Metrics | None = None
        while processed is None:
            runs = self._committed()
            experiences = [one for run in runs for one in _rewarded(run, step=step)]
            # Noted before anything is written: a checkpoint without this step makes it due again,
            # and what the store refuses here has left no row behind.
            self._store.taken([run.reward_number for run in runs], step=step)
            metrics = self._metrics(runs, experiences)
            processed = self._processed(runs, experiences)
        num_written = processed.get("experience_pipeline/num_written", len(experiences))
        return ExploreResult(
            metrics={**metrics, **processed},
            num_experiences=int(num_written),
        )

    def evaluate(self, step: int) -> Metrics:
        """Return nothing: a service has no tasks to evaluate on."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the store knows in which step each run was taken."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Accept the empty state."""

    def close(self) -> None:
        """Refuse further calls, and free the store; safe to call twice."""
        with ExitStack() as stack:  # all of them, whichever fails
            stack.callback(self._store.close)
            stack.callback(self._pipeline.close)
            stack.callback(self._front.close)

    def _processed(self, runs: Sequence[DueRun], experiences: list[Experience]) -> Metrics | None:
        """Hand on; None: it failed before, in an earlier start, and these runs are set aside.

        Raises:
            DataError: it failed for the first time, or the disk did.
        """
        try:
            return self._pipeline.process(experiences)
        except DataError as error:
            if isinstance(error.__cause__, OSError | sqlite3.Error):
                raise  # no run's fault
            if not self._store.failed([run.reward_number for run in runs]):
                raise
            names = ", ".join(run.name for run in runs[:SHOWN])
            logger.warning(
                "processing %d rewarded rollouts failed twice; they stay untrained: %s%s. "
                "%s",
                len(runs), names, " ..." if len(runs) > SHOWN else "", error,
            )  # fmt: skip
            return None

    def _committed(self) -> list[DueRun]:
        while not self._is_stopping():
            runs = self._store.due()
            if runs:
                return runs
            self._front.wait(LOOKS_EVERY_S)
            self._look_after()
        raise StopIteration

    def _look_after(self) -> None:
        self._drop_unresponsive()
        self._forget_old()

    def _drop_unresponsive(self) -> None:
        before, busy = time.time() - self._max_silence_s, self._front.busy()
        dropped = self._store.drop(before=before, spared=busy)
        if dropped:
            self._front.forget(dropped)
            logger.info(
                "dropped %d rollouts that got no reward within %g s of their last call "
                "(explorer.max_timeout)",
                len(dropped), self._max_silence_s,
            )  # fmt: skip

    def _forget_old(self) -> None:
        """Forget what is over; where there is much of it, a part at each look."""
        if time.monotonic() < self._forgets_at:
            return
        if not self._forget():
            self._forgets_at = time.monotonic() + FORGETS_EVERY_S

    def _metrics(self, runs: Sequence[DueRun], experiences: Sequence[Experience]) -> Metrics:
        rows = [{**run.metrics, "reward": run.reward} for run in runs]
        num_tokens = sum(int(e.action_mask.sum()) for e in experiences if e.action_mask is not None)
        counts = self._store.counts()
        return {
            **aggregate(rows, prefix="rollout"),
            "rollout/num_runs": float(len(runs)),
            "rollout/num_experiences": float(len(experiences)),
            "serve/num_tokens": float(num_tokens),
            "serve/open_runs": float(counts["open"]),
            "serve/dropped_runs": float(counts["dropped"]),
            "serve/set_aside": float(counts["set_aside"]),
        }


def _rewarded(run: DueRun, *, step: int) -> list[Experience]:
    """Return the experiences of a run as the trainer wants them: with reward, group and number."""
    group = run.task or NO_TASK
    for experience in run.experiences:
        given = experience.eid
        experience.reward = run.reward
        experience.eid = EID(
            batch=step,
            task=f"{group}{BETWEEN}{run.agent}" if run.agent else group,
            run=run.run_number,
            step=given.step,
            suffix=given.suffix,
        )
        experience.info = {**experience.info, "run": run.name}
    if run.experiences:
        last = run.experiences[-1]
        last.metrics = {**(last.metrics or {}), **run.metrics}
    return list(run.experiences)
