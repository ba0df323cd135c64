"""One explore step: tasks are run, groups are kept or dropped, experiences go on.

TaskReader --tasks--> requests --> results --groups--> experiences --pipeline--> buffer
                         ^          |
                         +----------+ further tasks, for groups that were dropped
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trinity.common.metrics import Metrics, aggregate
from trinity.explorer.finish import one_time_warnings, without_cut_runs
from trinity.explorer.group_metrics import evaluation_metrics
from trinity.explorer.groups import (
    FailedAttempts,
    FailureWatch,
    check_failures,
    counts_of,
    experiences_of,
    kept_groups,
    run_metrics,
    tell_failures,
    tell_retries,
)
from trinity.explorer.requests import RolloutResult, by_order, requests_of, workflow_info

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity.common.config import Config
    from trinity.common.experience import Experience
    from trinity.common.outcome import RunFailure
    from trinity.common.ports import EvaluationSet, ExperienceProcessor, TaskReader
    from trinity.common.workflows import Task, Workflow
    from trinity.explorer.requests import RolloutRequest, WorkflowInfo

logger = logging.getLogger(__name__)


class RequestRunner(Protocol):
    """Runs requests, in this process or in others."""

    @property
    def num_hung(self) -> int:
        """Return how many threads were left behind and still run."""

    @property
    def busy_s(self) -> float:
        """Return how many seconds the engines have spent on generating."""

    def run(self, requests: Sequence[RolloutRequest]) -> list[RolloutResult]:
        """Return how each request ended, in the order of the requests."""

    def close(self) -> None:
        """Free what it holds; safe to call twice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExploreResult:
    """What an explore step gave."""

    metrics: Metrics
    num_experiences: int  # that were written to the buffer
    failures: tuple[RunFailure, ...] = ()


class Explorer:
    """Runs workflows on the tasks of each step.

    Args:
        config: a resolved configuration.
        tasks: the training tasks; None in mode ``bench``, which only evaluates.
        evaluation_sets: the evaluation tasks.
        scheduler: runs the requests; closed with the explorer.
        pipeline: takes the experiences; None with ``tasks``.

    Attributes:
        on_evaluated: is told the step, the name of the set and the experiences of its evaluation.
        failed_attempts: of all steps and evaluations so far.
    """

    on_evaluated: Callable[[int, str, list[Experience]], None] | None = None

    def __init__(
        self,
        config: Config,
        *,
        tasks: TaskReader | None,
        evaluation_sets: Sequence[EvaluationSet] = (),
        scheduler: RequestRunner,
        pipeline: ExperienceProcessor | None,
    ) -> None:
        self._config = config.explorer
        self._is_detailed = config.monitor.detailed_stats
        self._batch_size = config.buffer.batch_size
        self._tasks = tasks
        self._evaluation_sets = list(evaluation_sets)
        self._scheduler = scheduler
        self._pipeline = pipeline
        self._workflows: dict[str | type[Workflow], WorkflowInfo] = {}  # that were looked up
        self._said: set[str] = set()
        self.failed_attempts = FailedAttempts()
        self._watch = FailureWatch(
            num_tasks=config.buffer.batch_size, max_failed_ratio=config.explorer.max_failed_ratio
        )

    def explore_step(self, step: int) -> ExploreResult:
        """Run the tasks of a step and hand on what they give.

        Raises:
            StopIteration: there are no more tasks.
            RunFailedError: too many runs failed.
            TrinityError: what no run would be spared: a wrong name, a row without its key.
        """
        if self._tasks is None or self._pipeline is None:
            raise ValueError("an explorer without tasks and pipeline can only evaluate")
        began, busy_s = time.perf_counter(), self._scheduler.busy_s
        results = self._results_of_step(self._tasks.read(self._batch_size), batch=str(step))
        self._tell(results, what=f"step {step}")
        kept = kept_groups(results)
        experiences = experiences_of(kept.results)
        self._tell_once(experiences)
        run_s = time.perf_counter() - began
        processed = self._pipeline.process(experiences)
        self._tasks.feedback(self._pipeline.feedback())
        engine_s = self._scheduler.busy_s - busy_s
        metrics = {
            **aggregate([row for r in kept.results for row in run_metrics(r)], prefix="rollout"),
            **counts_of(results),
            "rollout/dropped_groups": float(kept.num_dropped_groups),
            "rollout/hung_threads": float(self._scheduler.num_hung),
            "time/engine_s": engine_s,
            "time/workflow_s": max(0.0, run_s - engine_s),
            **processed,
        }
        return ExploreResult(
            metrics=metrics,
            num_experiences=int(processed.get("experience_pipeline/num_written", len(experiences))),
            failures=tuple(r.failure for r in results if r.failure is not None),
        )

    def evaluate(self, step: int) -> Metrics:
        """Run all evaluation tasks; their experiences are not stored.

        Raises:
            RunFailedError: too many runs failed.
        """
        metrics: Metrics = {}
        for evaluation in self._evaluation_sets:
            batch = f"eval/{step}/{evaluation.name}"
            results = self._run(evaluation.tasks(), batch=batch, first=0)
            check_failures(results, max_failed_ratio=self._config.max_failed_ratio)
            self._tell(results, what=f"evaluation {evaluation.name}")
            judged = ["reward" in row for result in results for row in run_metrics(result)]
            if any(judged) and not all(judged):
                lacking = f"{judged.count(False)} of {len(judged)} rollouts have no reward"
                what = "the mean is of the others alone. Set it in each, 0 for a failure."
                logger.warning("evaluation %s: %s: %s", evaluation.name, lacking, what)
            if self.on_evaluated is not None:
                good = [result for result in results if result.failure is None]
                self.on_evaluated(step, evaluation.name, experiences_of(good))
            metrics |= evaluation_metrics(
                results,
                prefix=f"eval/{evaluation.name}",
                repeat_times=evaluation.repeat_times,
                is_detailed=self._is_detailed,
            )
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return where the tasks stand, and what failed so far."""
        return {
            "tasks": self._tasks.state_dict() if self._tasks is not None else {},
            "recent_runs": self._watch.state_dict(),
            "failed_attempts": [self.failed_attempts.count, self.failed_attempts.first],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._tasks is not None and state.get("tasks"):
            self._tasks.load_state_dict(state["tasks"])
        self._watch.load_state_dict(state.get("recent_runs", []))
        self.failed_attempts = FailedAttempts(*state.get("failed_attempts", ()))

    def close(self) -> None:
        """Close what workflows and operators hold; safe to call twice."""
        with ExitStack() as stack:  # all of them, whichever fails
            if self._pipeline is not None:
                stack.callback(self._pipeline.close)
            stack.callback(self._scheduler.close)

    def _results_of_step(self, tasks: list[Task], *, batch: str) -> list[RolloutResult]:
        """Return the results of the tasks and of those that replace dropped groups.

        At most as many tasks are added as the step has: a step may end short.
        """
        results = self._run(tasks, batch=batch, first=0)
        self._watch.check(results)
        num_run, most = len(tasks), 2 * len(tasks)
        while missing := min(len(tasks) - _num_groups(results), most - num_run):
            further = self._further_tasks(missing)
            if not further:
                break
            results += self._run(further, batch=batch, first=num_run)
            num_run += len(further)
            self._watch.check(results)
        self._watch.note(results)
        return by_order(results)

    def _tell(self, results: Sequence[RolloutResult], *, what: str) -> None:
        tell_retries(results, what=what, said=self._said)
        tell_failures(results, what=what)

    def _tell_once(self, experiences: Sequence[Experience]) -> None:
        """Say what happened to conversations, each thing once."""
        for what, line in one_time_warnings(experiences).items():
            if what not in self._said:
                self._said.add(what)
                logger.warning("%s", line)

    def _further_tasks(self, count: int) -> list[Task]:
        assert self._tasks is not None
        try:
            return self._tasks.read(count)
        except StopIteration:
            return []

    def _run(self, tasks: Sequence[Task], *, batch: str, first: int) -> list[RolloutResult]:
        requests = [
            request
            for number, task in enumerate(tasks, start=first)
            for request in self._requests(task, batch=batch, number=number)
        ]
        can_fail = self._config.on_failed_run != "fail"
        results = without_cut_runs(self._scheduler.run(requests), can_fail=can_fail)
        self.failed_attempts.note(results)  # before they may end the run
        return results

    def _requests(self, task: Task, *, batch: str, number: int) -> list[RolloutRequest]:
        workflow = self._workflows.get(task.workflow)
        if workflow is None:
            workflow = self._workflows[task.workflow] = workflow_info(task.workflow)
        return requests_of(
            task,
            workflow=workflow,
            batch=batch,
            number=number,
            max_repeat_times=self._config.max_repeat_times_per_runner,
        )


def _num_groups(results: Sequence[RolloutResult]) -> int:
    return len({result.request.key.task for result in kept_groups(results).results})
