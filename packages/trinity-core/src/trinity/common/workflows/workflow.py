"""The contract of a workflow: let the model act on a task, return experiences."""

from __future__ import annotations

import asyncio
import importlib
import logging
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.models.auxiliary import auxiliary_client, wrapper_of
from trinity.common.value_checks import shown
from trinity.common.workflows.older_order import from_older_order
from trinity.errors import WorkflowError
from trinity.extend import Registry
from trinity.extend.published import published_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper
    from trinity.common.workflows.math import MathWorkflow
    from trinity.common.workflows.multi_turn_workflow import MultiTurnWorkflow
    from trinity.common.workflows.simple import SimpleWorkflow
    from trinity.common.workflows.task import Task

__all__ = [
    "WORKFLOWS",
    "MathWorkflow",
    "MultiTurnWorkflow",
    "SimpleWorkflow",
    "Task",
    "Workflow",
    "number_of",
    "reward_of",
    "whether",
]

WORKFLOWS: Registry = Registry("workflows", kind="workflow")

_PUBLISHED_HERE = {  # name -> its module, which imports this one
    "Task": "task",
    "SimpleWorkflow": "simple",
    "MathWorkflow": "math",
    "MultiTurnWorkflow": "multi_turn_workflow",
}
_MISSING = object()


class Workflow(ABC):
    """Makes one run (or, with ``can_repeat``, a group of runs) of a task.

    A subclass defines ``run``, or ``run_async`` where it awaits.

    Class attributes:
        can_reset: an instance may be given another task by ``reset`` instead of being built anew.
        can_repeat: one call makes all runs of the group by asking the model for ``repeat_times``
            samples. Any other workflow is called once a run and sees ``repeat_times`` 1.
        needs_reward_fn: a task must name a reward function; the workflow has none of its own.
        needs_history: ``explorer.rollout_model.enable_history`` must be on.
        needs_endpoint: ``explorer.rollout_model.enable_openai_api`` is on unless it was set.
        is_async: the explorer awaits ``run_async``; follows from which of the two is defined.

    Attributes:
        task, model: what it was built with.
        auxiliary_models: clients of judges and teachers, never trained; None: there are none. Of
            ``openai.OpenAI``, or where ``is_async`` of ``openai.AsyncOpenAI``.
        auxiliary_model_wrappers: the same as ``ModelWrapper``, with ``chat`` and ``logprobs``.
        repeat_times: how many runs this call is to make.
        run_id_base: the number of the first of them.
        logger: named after the class's module.
    """

    can_reset: ClassVar[bool] = False
    can_repeat: ClassVar[bool] = False
    needs_reward_fn: ClassVar[bool] = False
    needs_history: ClassVar[bool] = False
    needs_endpoint: ClassVar[bool] = False
    is_async: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        defined = cls.__dict__
        if "run_async" in defined and "run" not in defined:
            cls.run = _run_by_awaiting  # type: ignore[method-assign]
            cls.is_async = defined.get("is_async", True)
        elif "run" in defined and "run_async" not in defined:
            cls.is_async = defined.get("is_async", False)

    def __init__(
        self,
        *older: Any,
        task: Task = _MISSING,  # type: ignore[assignment]
        model: ModelWrapper = _MISSING,  # type: ignore[assignment]
        auxiliary_models: list[Any] | None = None,
    ) -> None:
        """Take ``task``, ``model`` and ``auxiliary_models`` by keyword.

        The older positional order ``(model, task, auxiliary_models)`` still works.
        """
        given: dict[str, Any] = {"task": task, "model": model, "auxiliary_models": auxiliary_models}
        if older:
            given |= from_older_order(type(self), older, given, missing=_MISSING)
        missing = [name for name in ("task", "model") if given[name] is _MISSING]
        if missing:
            raise TypeError(f"{type(self).__name__} is missing the keyword {' and '.join(missing)}")
        self.task: Task = given["task"]
        self.model: ModelWrapper = given["model"]
        self._auxiliary: list[Any] = list(given["auxiliary_models"] or ())
        self.auxiliary_model_wrappers = [wrapper_of(one) for one in self._auxiliary] or None
        self.repeat_times = getattr(self.task, "repeat_times", 1) or 1
        self.run_id_base = 0
        self.logger = logging.getLogger(f"trinity.{type(self).__module__.removeprefix('trinity.')}")

    @cached_property
    def auxiliary_models(self) -> list[Any] | None:
        """Return the clients of judges and teachers; None: there are none."""
        is_async = type(self).is_async
        return [auxiliary_client(one, is_async=is_async) for one in self._auxiliary] or None

    #: a dataclass or model of pydantic whose fields are the ``workflow_args``; with None, arguments
    #: that the workflow does not know are ignored
    args_model: ClassVar[type | None] = None

    @classmethod  # noqa: B027
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Raise a ``TrinityError`` if no row of a taskset with these ``workflow_args`` could run.

        Called for each taskset before anything is started: an argument that does not exist, data
        that are not there.
        """

    @abstractmethod
    def run(self) -> list[Experience]:
        """Return the experiences of the run."""

    async def run_async(self) -> list[Experience]:
        """Return the experiences of the run; used when ``is_async``."""
        return await asyncio.to_thread(self.run)

    def resettable(self) -> bool:
        """Return whether ``reset`` may be used; ``can_reset`` unless overridden."""
        return self.can_reset

    @property
    def repeatable(self) -> bool:
        """Return ``can_repeat``, as published."""
        return self.can_repeat

    @property
    def asynchronous(self) -> bool:
        """Return ``is_async``, as published."""
        return self.is_async

    def reset(self, task: Task) -> None:
        """Become what a new instance for ``task`` would be."""
        self.task = task

    def set_repeat_times(self, repeat_times: int, run_id_base: int) -> None:
        """Note how many runs the next call makes, and the number of the first."""
        self.repeat_times = repeat_times
        self.run_id_base = run_id_base

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Free what the instance holds; it is not used again.

        Called once, also where the run failed. Where it did not end in time, it is called while the
        run still hangs, from another thread: closing what it waits for ends it.
        """


def _run_by_awaiting(self: Workflow) -> list[Experience]:
    """Return the experiences of ``run_async``, for a caller without an event loop."""
    return asyncio.run(self.run_async())


def __getattr__(name: str) -> Any:  # Any: a class
    if name not in _PUBLISHED_HERE:
        return published_name(__name__, name)
    module = importlib.import_module(f"{__package__}.{_PUBLISHED_HERE[name]}")
    return getattr(module, name)


def number_of(value: Any, *, what: str, remedy: str) -> float:  # Any: of the user's own code
    """Return the number that a value is: a number, or a tensor or array of one.

    Args:
        value: what the user's code gave.
        what: who gave it, for the message.
        remedy: what to do instead, for the message.

    Raises:
        WorkflowError: it is no number.
    """
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError("a text is no number, even if it reads like one")
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise WorkflowError(f"{what} is {shown(value)}, which is no number. {remedy}") from error


def reward_of(value: Any, *, what: str) -> float | None:  # Any: of the user's own code
    """Return the number that a value is; None stays None, as another signal may stand for it.

    Args:
        value: a number, or a tensor or array of one number.
        what: who gave it, for the message.

    Raises:
        WorkflowError: it is no number.

    >>> reward_of(True, what="reward()")
    1.0
    """
    if value is None:
        return None
    remedy = "Give a finite number, or raise trinity.errors.EnvError if the run cannot be judged."
    return number_of(value, what=what, remedy=remedy)


def whether(goes_on: Any) -> bool:  # Any: of the user's own code
    """Return what ``step`` says.

    Raises:
        WorkflowError: it is neither true nor false: None, or a tuple as an environment returns it.
    """
    if goes_on is None or goes_on not in (True, False):
        raise WorkflowError(
            f"step() returned {shown(goes_on)}. Return True to go on, False to stop."
        )
    return bool(goes_on)
