"""What is to be run, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trinity.common.ports import RunKey
from trinity.extend import get_manager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience
    from trinity.common.outcome import RunFailure
    from trinity.common.workflows import Task, Workflow


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowInfo:
    """A workflow's class, and what messages call it."""

    cls: type[Workflow]
    name: str  # the registered name, or module:Class
    plugin: str  # who provides it, "trinity-core 0.1.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutRequest:
    """One call of a workflow: one run, or a slice of a group that one call makes."""

    task: Task  # sees repeat_times and n of this call
    workflow: WorkflowInfo
    key: RunKey  # of the first run
    num_runs: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutResult:
    """How an order ended, after its last attempt."""

    order: RolloutRequest
    experiences: tuple[Experience, ...] = ()
    failure: RunFailure | None = None  # None: it ended well
    retried: tuple[RunFailure, ...] = ()  # how the attempts before the last one ended
    duration_s: float = 0.0


def requests_of(
    task: Task, *, batch: str, number: int, max_repeat_times: int | None
) -> list[RolloutRequest]:
    """Return the calls that make ``task.repeat_times`` runs, in the order of the runs.

    A workflow with ``can_repeat`` is called once for the group, or once for each slice of at most
    ``max_repeat_times`` runs. Any other is called once a run, and sees n = 1 and repeat_times = 1.

    Args:
        task: the task, with the repeat_times of the whole group.
        batch: the explore step, or the name of the evaluation.
        number: the position of the task in the batch.
        max_repeat_times: the most runs that one call makes; None: no limit.
    """
    workflow = _info(task.workflow)
    total = max(1, task.repeat_times)
    size = min(total, max_repeat_times or total) if workflow.cls.can_repeat else 1
    return [
        RolloutRequest(
            task=_sliced(task, batch=batch, number=number, num_runs=min(size, total - first)),
            workflow=workflow,
            key=RunKey(batch=batch, task=number, run=first),
            num_runs=min(size, total - first),
        )
        for first in range(0, total, size)
    ]


def restored_request(
    task: Task, *, batch: str, number: int, run: int, num_runs: int
) -> RolloutRequest:
    """Return an order that was made in another process; ``task`` is that of any of its group."""
    return RolloutRequest(
        task=_sliced(task, batch=batch, number=number, num_runs=num_runs),
        workflow=_info(task.workflow),
        key=RunKey(batch=batch, task=number, run=run),
        num_runs=num_runs,
    )


def by_order(results: Sequence[RolloutResult]) -> list[RolloutResult]:
    """Return the results in the order of tasks and runs."""
    return sorted(results, key=lambda result: result.order.key)


def _sliced(task: Task, *, batch: str, number: int, num_runs: int) -> Task:
    return replace(
        task,
        batch_id=batch,
        task_id=number,
        repeat_times=num_runs,
        rollout_args=task.rollout_args.model_copy(update={"n": num_runs}),
    )


def _info(workflow: str | type[Workflow]) -> WorkflowInfo:
    component = get_manager().find("workflow", workflow)
    name = workflow if isinstance(workflow, str) else component.spec.target
    return WorkflowInfo(cls=component.load(), name=name, plugin=str(component.origin))
