"""Workflows that are run by ``execute``: the run's model records, ``update_reward`` scores."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows.task import Task
from trinity.common.workflows.workflow import Workflow
from trinity.errors import WorkflowError

from trinity_compat_rft.paths.recorded_model import RecordedModel, RecordedTask

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper

__all__ = ["Metrics", "RecordedModel", "Status", "WorkflowBase", "WorkflowWithRecording"]

Metrics = dict[str, float]


@dataclass(frozen=True)
class Status:
    """How a workflow ended.

    Attributes:
        completed_runs, total_runs: of the group; equal where all went well.
        metrics: of each run.
        successful_ids: ids of the runs that went well.
        message: why the others did not.
    """

    completed_runs: int
    total_runs: int
    metrics: list[Metrics]
    successful_ids: list[str] = field(default_factory=list)
    message: str | None = None

    @property
    def ok(self) -> bool:
        """Return whether all runs are complete."""
        return self.completed_runs == self.total_runs


def _executed(own: Callable[..., Coroutine[Any, Any, Any]] | None) -> Any:  # Any: a method
    """Return the ``run_async`` that a runner calls, around the class's own that returns metrics."""

    @wraps(own or WorkflowBase.execute)
    async def run_async(self: WorkflowBase) -> Any:
        if self._is_executing and own is not None:
            return await own(self)
        self._is_executing = True
        status = await self.execute()
        return self.finished(status)

    return run_async


class WorkflowBase(Workflow):
    """A workflow that is run by ``execute``, which says how it ended.

    Its experiences are what the model recorded and ``update_experience_reward_async`` scored, or
    what ``overwrite_history_experiences_async`` was given.
    """

    is_async: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        own = cls.__dict__.get("run_async")
        super().__init_subclass__(**kwargs)
        if own is not None:
            cls.run_async = _executed(own)  # type: ignore[method-assign]

    def __init__(
        self, task: Task, model: ModelWrapper, auxiliary_models: list[Any] | None = None
    ) -> None:
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self.model: Any = RecordedModel(model)
        self._is_executing = False

    @property
    def task(self) -> RecordedTask:
        """Return the task of the run, whose ``api_key`` is the run's."""
        return self._task

    @task.setter
    def task(self, task: Task) -> None:
        given = {one.name: getattr(task, one.name) for one in fields(Task)}
        self._task = RecordedTask(**given, key=lambda: self.model.api_key)

    @abstractmethod
    async def execute(self) -> Status:
        """Run, and return how it ended."""

    async def run_async(self) -> list[Experience]:
        """Return the experiences of ``execute``."""
        return self.finished(await self.execute())

    def run(self) -> list[Experience]:
        """Return the same, for a caller without an event loop."""
        import asyncio

        return asyncio.run(self.run_async())

    def reset(self, task: Task) -> None:
        """Become what a new instance for ``task`` would be."""
        super().reset(task)
        self.model = RecordedModel(self.model._model)
        self._is_executing = False

    def finished(self, status: Status) -> list[Experience]:
        """Return the scored experiences, with the metrics of the status.

        Raises:
            WorkflowError: it is no status, or not all runs are complete.
        """
        if not isinstance(status, Status):
            raise WorkflowError(f"execute() returned {status!r}. Return a Status.")
        if not status.ok:
            reason = f": {status.message}" if status.message else ""
            raise WorkflowError(
                f"{status.completed_runs} of {status.total_runs} runs are complete{reason}."
            )
        experiences = self.model.scored()
        for metrics in status.metrics:
            experiences[-1].metrics |= metrics
        return list(experiences)


class WorkflowWithRecording(WorkflowBase):
    """Runs an agent that asks at ``base_url`` with ``api_key``; its replies are recorded.

    ``run_async`` calls ``update_reward`` and returns metrics.
    """

    needs_endpoint: ClassVar[bool] = True

    @property
    def base_url(self) -> str:
        """Return the address of the model's OpenAI API."""
        return str(self.model.base_url)

    @property
    def api_key(self) -> str:
        """Return the key by which calls are known as this run's."""
        return str(self.model.api_key)

    @property
    def model_name(self) -> str:
        """Return the name that a call gives as ``model``."""
        return str(self.model.endpoint_of_run.model)

    async def execute(self) -> Status:
        """Run, and return how it ended."""
        metrics: Any = await self.run_async()  # of the subclass: a dict of numbers
        return Status(
            completed_runs=1,
            total_runs=1,
            metrics=[dict(metrics or {})],
            successful_ids=[self.api_key],
        )

    async def update_reward(
        self,
        reward: float,
        info: dict[str, Any] | None = None,
        sample_ids: list[str] | None = None,
    ) -> None:
        """Give recorded replies a reward; see ``RecordedModel.update_experience_reward_async``."""
        await self.model.update_experience_reward_async(
            reward=reward, info=info, sample_ids=sample_ids
        )
