"""Attributes of a workflow that its task gives, until the workflow sets them itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.workflows.task import Task
    from trinity.common.workflows.workflow import Workflow

__all__ = ["MAX_ENV_STEPS", "OfTask", "checked_steps", "max_env_steps"]

MAX_ENV_STEPS = 30  # where workflow_args say nothing
Value = TypeVar("Value")


class OfTask(Generic[Value]):
    """Reads its value from the task of the instance; a subclass or an instance may set another."""

    def __init__(self, read: Callable[[Task], Value]) -> None:
        self._read = read

    def __get__(self, workflow: Workflow | None, owner: Any = None) -> Value:
        """Return what the task says."""
        if workflow is None:
            return self  # type: ignore[return-value]  # asked of the class
        return self._read(workflow.task)


def max_env_steps(task: Task) -> int:
    """Return ``workflow_args.max_env_steps``, else 30.

    Raises:
        ConfigError: it is no whole number above 0.
    """
    given = task.workflow_args.get("max_env_steps", MAX_ENV_STEPS)
    return checked_steps(given, name="workflow_args.max_env_steps")


def checked_steps(given: Any, *, name: str) -> int:  # Any: of the user's
    """Return the most steps of a run.

    Raises:
        ConfigError: it is no whole number above 0.
    """
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ConfigError(f"{name} is {given!r}. Give the most steps of a run: 1 or more.")
    return given
