"""What is to be run, and how it ended."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from trinity.common.outcome import RunFailure
from trinity.common.ports import RunKey
from trinity.extend import get_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from trinity.common.experience import Experience
    from trinity.common.workflows import Task, Workflow
    from trinity.explorer.runner import RolloutAttempt
    from trinity.explorer.scheduler import Slot

    Find = Callable[[str | type[Workflow]], "WorkflowInfo"]


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
    """How a request ended, after its last attempt."""

    request: RolloutRequest
    experiences: tuple[Experience, ...] = ()
    failure: RunFailure | None = None  # None: it ended well
    retried: tuple[RunFailure, ...] = ()  # how the attempts before the last one ended
    duration_s: float = 0.0


def requests_of(
    task: Task,
    *,
    batch: str,
    number: int,
    max_repeat_times: int | None,
    workflow: WorkflowInfo | None = None,
) -> list[RolloutRequest]:
    """Return the calls that make ``task.repeat_times`` runs, in the order of the runs.

    A workflow with ``can_repeat`` is called once for the group, or once for each slice of at most
    ``max_repeat_times`` runs. Any other is called once a run, and sees n = 1 and repeat_times = 1.

    Args:
        task: the task, with the repeat_times of the whole group.
        batch: the explore step, or the name of the evaluation.
        number: the position of the task in the batch.
        max_repeat_times: the most runs that one call makes; None: no limit.
        workflow: of the task; None: it is looked up.
    """
    workflow = workflow or workflow_info(task.workflow)
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


def by_order(results: Sequence[RolloutResult]) -> list[RolloutResult]:
    return sorted(results, key=lambda result: result.request.key)


def _sliced(task: Task, *, batch: str, number: int, num_runs: int) -> Task:
    return replace(
        task,
        batch_id=batch,
        task_id=number,
        repeat_times=num_runs,
        rollout_args=task.rollout_args.model_copy(update={"n": num_runs}),
    )


def workflow_info(workflow: str | type[Workflow]) -> WorkflowInfo:
    """Return the class of a workflow, its name and whose it is.

    Raises:
        UnknownComponentError: nothing has that name.
        PluginError: it cannot be imported.
    """
    component = get_manager().find("workflow", workflow)
    name = workflow if isinstance(workflow, str) else component.spec.target
    return WorkflowInfo(cls=component.load(), name=name, plugin=str(component.origin))


def restored_request(
    task: Task, *, batch: str, number: int, run: int, num_runs: int, find: Find = workflow_info
) -> RolloutRequest:
    """Return a request that was made in another process; ``task`` is that of any of its group."""
    return RolloutRequest(
        task=_sliced(task, batch=batch, number=number, num_runs=num_runs),
        workflow=find(task.workflow),
        key=RunKey(batch=batch, task=number, run=run),
        num_runs=num_runs,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutLimits:
    """How much is run at once, how long, and how often."""

    num_slots: int  # of each engine
    timeout_s: float  # of one attempt
    max_attempts: int
    can_fail: bool = True  # False: the first failed run stops everything
    mode: ConcurrentMode = "sequential"  # how a slot makes the runs of a task
    max_at_once: int | None = None  # of them, in the other modes


@dataclass(eq=False, slots=True)
class RequestBatch:
    """Requests that were given together."""

    name: Hashable
    num_open: int  # of them, those that have not ended
    results: dict[int, RolloutResult] = field(default_factory=dict)  # by place

    def note(self, place: int, report: RolloutResult) -> bool:
        """Take note of how a request ended; return whether somebody asks for all of them now."""
        self.results[place] = report
        self.num_open -= 1
        return not self.num_open and self.name is not None

    def reports(self) -> list[RolloutResult]:
        return [self.results[place] for place in range(len(self.results))]


@dataclass(eq=False)
class RunningRollout:
    """A request that runs: STARTED -> ENDED, or STARTED -> LATE -> STARTED again | ENDED."""

    place: int
    attempt: RolloutAttempt
    group: RequestGroup
    slot: Slot
    began: float
    deadline: float


def report_of(running: RunningRollout, ended: object) -> RolloutResult:
    """Return how a run ended: ``ended`` is its failure, or the list of its experiences."""
    failure = ended if isinstance(ended, RunFailure) else None
    return RolloutResult(
        request=running.attempt.request,
        experiences=() if failure else tuple(ended),  # type: ignore[arg-type] # a list
        failure=failure,
        retried=running.attempt.earlier,
        duration_s=time.monotonic() - running.began,
    )


ConcurrentMode = Literal["sequential", "asynchronous", "multi-threading"]


@dataclass(eq=False, slots=True)
class RequestGroup:
    """Requests that begin together, each with its place in the results."""

    requests: list[tuple[int, RolloutRequest]]
    num_open: int = 0  # of them, those that have not ended

    def add(self, place: int, request: RolloutRequest) -> None:
        """Let another request begin with these."""
        self.requests.append((place, request))
        self.num_open += 1


def request_groups(
    requests: Sequence[RolloutRequest], *, mode: ConcurrentMode, max_at_once: int | None
) -> list[RequestGroup]:
    """Return the requests in groups, in their order.

    Args:
        requests: those of a task stand next to each other.
        mode: ``sequential``: each request is a group. ``multi-threading``: those of a task are one,
            each run in a thread. ``asynchronous``: so for workflows that await, only.
        max_at_once: the most runs of a group; None: no limit.
    """
    groups: list[RequestGroup] = []
    last = None
    for place, request in enumerate(requests):
        is_full = groups and len(groups[-1].requests) == max_at_once
        task = (request.key.batch, request.key.task)
        if not _may_join(request, mode) or task != last or is_full:
            groups.append(RequestGroup([]))
        groups[-1].add(place, request)
        last = task
    return groups


def _may_join(request: RolloutRequest, mode: ConcurrentMode) -> bool:
    cls = request.workflow.cls
    if mode == "sequential" or cls.can_repeat:
        return False
    return mode == "multi-threading" or cls.is_async


class RequestQueues:
    """One queue an engine, the oldest requests first.

    Args:
        count: of the engines.
        limits: how the runs of a task stand together.
    """

    def __init__(self, count: int, limits: RolloutLimits) -> None:
        self.queues: list[deque[RequestGroup]] = [deque() for _ in range(count)]
        self._limits = limits
        self._batches: dict[RequestGroup, RequestBatch] = {}  # of what waits or runs
        self._num_open = [0] * count  # of them, by engine

    def add(self, batch: RequestBatch, requests: Sequence[RolloutRequest]) -> None:
        """Queue the requests of a batch, those of a task for one engine."""
        limits = self._limits
        for group in request_groups(requests, mode=limits.mode, max_at_once=limits.max_at_once):
            self._batches[group], number = batch, self.of(group.requests[0][1])
            self.queues[number].append(group)
            self._num_open[number] += 1

    def of(self, request: RolloutRequest) -> int:
        return request.key.task % len(self.queues)

    def batch_of(self, group: RequestGroup) -> RequestBatch:
        return self._batches[group]

    def ended(self, group: RequestGroup) -> None:
        if self._batches.pop(group, None) is not None:
            self._num_open[self.of(group.requests[0][1])] -= 1

    def num_running(self, number: int) -> int:
        return self._num_open[number] - len(self.queues[number])

    def where(self, name: Hashable) -> str:
        """Return which engine answers the requests of a batch."""
        for group, batch in self._batches.items():
            if batch.name == name:
                return f"engine-{self.of(group.requests[0][1])}"
        return "no engine"

    def withdraw(self, name: Hashable) -> list[RequestGroup]:
        """Take the groups of a batch that wait for a slot out of the queues, and return them."""
        waiting = [p for queue in self.queues for p in queue if self._batches[p].name == name]
        for queue in self.queues:
            kept = [group for group in queue if group not in waiting]
            queue.clear()
            queue.extend(kept)
        return waiting

    def clear(self) -> None:
        """Forget all of them."""
        for queue in self.queues:
            queue.clear()
        self._batches.clear()
        self._num_open = [0] * len(self.queues)
