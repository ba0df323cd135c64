"""Run one request once: get a workflow, call it, check what it returns."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trinity.common.config.machine import model_vocab
from trinity.common.models.auxiliary import Auxiliary, wrapper_of
from trinity.common.models.model import ModelWrapper
from trinity.common.outcome import Outcome
from trinity.common.secrets import masked_values
from trinity.common.value_checks import TokenLimits, text_of
from trinity.common.workflows.env_pool import end_free_environments
from trinity.common.workflows.recorded_env import ENVIRONMENT, Recording
from trinity.errors import EnvError
from trinity.explorer.event_loop import EventLoopThread
from trinity.explorer.failure import FATAL, failure_of, traceback_text
from trinity.explorer.finish import finished

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from trinity.common.experience import Experience
    from trinity.common.outcome import RunFailure
    from trinity.common.workflows import Workflow
    from trinity.common.workflows.recorded_env import Environments
    from trinity.common.workflows.task import Task
    from trinity.explorer.requests import RolloutRequest

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class RolloutAttempt:
    """One try at a request; ``awaited`` is what can be cancelled when time is up."""

    request: RolloutRequest
    earlier: tuple[RunFailure, ...] = ()  # how the tries before it ended
    awaited: Future[Any] | None = None
    instance: _Instance | None = None
    is_abandoned: bool = False
    traceback: str = ""  # how it failed, if it did
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def number(self) -> int:
        return len(self.earlier) + 1

    @property
    def draw(self) -> int:
        """Return which try it would be if none had taken too long."""
        return 1 + sum(failure.outcome is not Outcome.TIMEOUT for failure in self.earlier)

    def let_go(self) -> bool:
        """Return whether the instance is still the runner's; from now on nobody else closes it."""
        with self.lock:
            self.instance = None
            return not self.is_abandoned

    def abandon(self) -> None:
        """Leave the run behind: cancel what it awaits, close what it holds.

        Closing takes a thread of its own, as it may hang as the run does.
        """
        with self.lock:
            self.is_abandoned, instance = True, self.instance
        if self.awaited is not None:
            self.awaited.cancel()
        if instance is not None:
            instance.model.end_run()
            name = f"trinity-closing-{self.request.workflow.name}"
            threading.Thread(target=instance.close, name=name, daemon=True).start()


@dataclass(eq=False)
class _Instance:
    workflow: Workflow
    model: ModelWrapper
    told: set[str]  # what the runner has warned of
    auxiliary: list[Any] = field(default_factory=list)  # Any: what the workflow was given
    is_closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def close_endpoints(self) -> None:
        for model in (self.model, *map(wrapper_of, self.auxiliary)):
            if isinstance(model, ModelWrapper):
                model.close_endpoints()

    def close(self) -> None:
        """Close the workflow, once; an error of it is told and changes no run."""
        with self.lock:
            is_closed, self.is_closed = self.is_closed, True
        if is_closed:
            return
        self.close_endpoints()
        try:
            self.workflow.close()
        except Exception as error:  # noqa: BLE001 - the boundary around a plugin's code
            name, kind = type(self.workflow).__name__, type(error).__name__
            line = f"{name}.close() raised {kind}: {text_of(error)}"
            if line not in self.told:
                self.told.add(line)
                logger.warning("%s. Its rollouts are not lost; its resources may stay open.", line)


@dataclass
class _Pool:
    """Instances that wait for their next task, by class."""

    waiting: dict[type, list[_Instance]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, cls: type) -> _Instance | None:
        with self.lock:
            instances = self.waiting.get(cls)
            return instances.pop() if instances else None

    def put(self, instance: _Instance) -> None:
        with self.lock:
            self.waiting.setdefault(type(instance.workflow), []).append(instance)

    def empty(self) -> list[_Instance]:
        with self.lock:
            held = [instance for instances in self.waiting.values() for instance in instances]
            self.waiting.clear()
            return held


class Runner:
    """Runs requests on one engine; any number of threads may call it.

    Args:
        model: the wrapper of the engine; each run gets one of its own.
        auxiliary_models: handed to every workflow; each run gets a client of an ``Auxiliary``.
        loop: where workflows that await run.
        environments: keeps or gives back what the environments of a request answer; None: neither.
        engine_name: which one it is, for who reads the experiences.
    """

    def __init__(
        self,
        model: ModelWrapper,
        *,
        auxiliary_models: Sequence[Any] = (),
        loop: EventLoopThread | None = None,
        environments: Callable[[RolloutRequest], Environments | None] = lambda _: None,
        engine_name: str = "engine-0",
    ) -> None:
        self._model = model
        self._auxiliary_models = list(auxiliary_models)
        self._loop = loop or EventLoopThread()
        self._environments = environments
        self._engine_name = engine_name
        settings = model.settings
        self._limits = TokenLimits(
            max_len=settings.max_model_len, vocab=model_vocab(settings.model_path)
        )
        self._pool = _Pool()
        self._rewarded: dict[str, Any] = {}  # classes of reward functions by their names
        self._told: set[str] = set()

    def run(self, attempt: RolloutAttempt) -> list[Experience] | RunFailure:
        """Return the experiences of the request, or how it failed.

        Raises:
            TrinityError: what no other run would be spared either (``failure.FATAL``).
        """
        try:
            return self._run(attempt)
        except (*FATAL, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - the boundary around one rollout
            attempt.traceback = traceback_text(error)
            return failure_of(error, request=attempt.request, attempt=attempt.number)

    def close(self) -> None:
        """Close the instances that wait, and their environments; safe to call twice."""
        with ExitStack() as stack:  # all of them, whichever fails
            stack.callback(end_free_environments)
            stack.callback(self._loop.close)
            for one in self._auxiliary_models:
                if isinstance(one, Auxiliary):
                    stack.callback(one.close)
            for instance in self._pool.empty():
                stack.callback(instance.close)

    def _run(self, attempt: RolloutAttempt) -> list[Experience]:
        request = attempt.request
        environments = self._environments(request)
        attempt.instance = instance = self._instance(attempt, environments)
        workflow = instance.workflow
        if attempt.is_abandoned:  # while it was built
            instance.close()
            raise EnvError("timed out before it started")
        workflow.set_repeat_times(request.num_runs, request.key.run)
        is_whole = False
        try:
            returned = self._called(workflow, attempt)
            instance.model.check_served()
            version = instance.model.oldest_version  # that workflows may have built rows from
            if version is None:
                version = getattr(self._model, "model_version", 0)
            experiences = finished(
                returned,
                request=request,
                version=version,
                limits=self._limits,
                engine=self._engine_name,
                earlier_chains=instance.model.earlier_chains,
            )
            if environments is not None and (kept := environments.text()):
                experiences[-1].info[ENVIRONMENT] = masked_values(kept)
            is_whole = attempt.let_go()
        finally:
            instance.close_endpoints()
            if is_whole and not instance.auxiliary and _is_resettable(workflow):
                self._pool.put(instance)
            else:
                instance.close()
        return experiences

    def _instance(self, attempt: RolloutAttempt, environments: Environments | None) -> _Instance:
        """Return an instance that was reset to the task, or a new one."""
        request = attempt.request
        key = replace(request.key, attempt=attempt.number, draw=attempt.draw)
        instance = self._pool.take(request.workflow.cls)
        task = replace(self._with_reward_class(request.task), environments=environments)
        task.raw_task, task.workflow_args = _copied((task.raw_task, task.workflow_args))
        if instance is not None:
            instance.model.begin_run(key, task=task)
            try:
                instance.workflow.reset(task)
            except BaseException:
                instance.close()
                raise
            return instance
        model = self._model.for_run(key, task=request.task)
        # The class was looked up when the request was made; a name could mean another one by now.
        task = replace(task, workflow=request.workflow.cls)
        auxiliary = [
            one.for_run(key) if isinstance(one, Auxiliary) else one
            for one in self._auxiliary_models
        ]
        wrappers = [one for one in map(wrapper_of, auxiliary) if isinstance(one, ModelWrapper)]
        model.beside = {one.model_name: one for one in wrappers}
        workflow = task.to_workflow(model, auxiliary)
        return _Instance(workflow, model, self._told, auxiliary)

    def _with_reward_class(self, task: Task) -> Task:
        name = task.reward_fn
        if not isinstance(name, str):
            return task
        if name not in self._rewarded:
            self._rewarded[name] = task.with_reward_class().reward_fn
        return replace(task, reward_fn=self._rewarded[name])

    def _called(self, workflow: Workflow, attempt: RolloutAttempt) -> Any:  # Any: what it returns
        if not workflow.is_async:
            return workflow.run()
        attempt.awaited = self._loop.submit(workflow.run_async())
        return attempt.awaited.result()


def _copied(value: Any) -> Any:  # Any: of a row
    """Copy the dicts and lists in it: what a rollout changes in them, no other rollout sees."""
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return {k: _copied(v) for k, v in value.items()} if type(value) is dict else value


def _is_resettable(workflow: Workflow) -> bool:
    """Return what ``resettable()`` says; a property or attribute of that name counts too."""
    answer = workflow.resettable
    return bool(answer() if callable(answer) else answer)


def recording_of(request: RolloutRequest) -> Recording | None:
    """Return what keeps the environments of a run that is trained on and was made alone."""
    return None if request.task.is_eval or request.num_runs > 1 else Recording()
