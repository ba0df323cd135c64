"""What went wrong in a run, as data."""

from __future__ import annotations

import inspect
import traceback
from typing import TYPE_CHECKING

from trinity.common.outcome import Outcome, RunFailure
from trinity.common.workflows import Workflow
from trinity.errors import (
    ConfigError,
    ConflictError,
    DataError,
    EnvError,
    ModelError,
    PluginError,
    UnknownComponentError,
)

if TYPE_CHECKING:
    from trinity.explorer.order import RunOrder

__all__ = ["FATAL", "failure_of", "timed_out"]

# Every run would meet these, and repeating helps nobody: the user must change something.
FATAL = (ConfigError, ConflictError, DataError, PluginError, UnknownComponentError)


def failure_of(error: BaseException, *, order: RunOrder, attempt: int) -> RunFailure:
    """Return the failure that an error of a workflow means."""
    outcome = Outcome.WORKFLOW_ERROR
    if isinstance(error, EnvError):
        outcome = Outcome.ENV_ERROR
    elif isinstance(error, ModelError):
        outcome = Outcome.MODEL_ERROR
    return _failure(
        outcome,
        f"{type(error).__name__}: {_one_line(str(error))}",
        order=order,
        attempt=attempt,
        where=_where(error, order.workflow.cls),
    )


def timed_out(order: RunOrder, *, attempt: int, limit_s: float) -> RunFailure:
    """Return the failure of a run that did not end in time."""
    message = f"did not end in {limit_s:g} s. Raise explorer.max_timeout if it needs longer."
    return _failure(Outcome.TIMEOUT, message, order=order, attempt=attempt)


def _failure(
    outcome: Outcome, message: str, *, order: RunOrder, attempt: int, where: str = ""
) -> RunFailure:
    return RunFailure(
        outcome=outcome,
        workflow=order.workflow.name,
        plugin=order.workflow.plugin,
        task_id=f"{order.key.batch}/{order.key.task}",
        run=order.key.run,
        message=message,
        where=where,
        attempt=attempt,
    )


def _where(error: BaseException, cls: type[Workflow]) -> str:
    """Return file and line of the innermost frame in a file of the workflow's own."""
    files = _own_files(cls)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename in files]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def _own_files(cls: type[Workflow]) -> set[str]:
    files: set[str] = set()
    for owner in cls.__mro__:
        if owner is Workflow:
            break
        try:
            files.add(inspect.getfile(owner))
        except (OSError, TypeError):  # defined in a notebook or an interpreter: there is no file
            continue
    return files


def _one_line(text: str) -> str:
    return " ".join(text.split())
