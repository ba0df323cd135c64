"""What went wrong in a run, as data."""

from __future__ import annotations

import inspect
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from trinity.common.outcome import Outcome, RunFailure
from trinity.common.workflows import Workflow
from trinity.errors import (
    BadTaskError,
    ConfigError,
    ConflictError,
    DataError,
    EnvError,
    JudgementCutError,
    ModelError,
    PluginError,
    UnknownComponentError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trinity.explorer.order import RunOrder

# Every run would meet these, and repeating helps nobody: the user must change something.
FATAL = (ConfigError, ConflictError, DataError, PluginError, UnknownComponentError)


def failure_of(error: BaseException, *, order: RunOrder, attempt: int) -> RunFailure:
    """Return the failure that an error of a workflow means."""
    outcome = Outcome.WORKFLOW_ERROR
    if isinstance(error, EnvError):
        outcome = Outcome.ENV_ERROR
    elif isinstance(error, ModelError):
        outcome = Outcome.MODEL_ERROR
    elif isinstance(error, JudgementCutError):
        outcome = Outcome.TIMEOUT
    return _failure(
        outcome,
        f"{type(error).__name__}: {_one_line(str(error))}",
        order=order,
        attempt=attempt,
        where=_where(traceback.extract_tb(error.__traceback__), order.workflow.cls),
        is_final=isinstance(error, (BadTaskError, JudgementCutError)),
    )


def timed_out(
    order: RunOrder, *, attempt: int, limit_s: float, stack: Iterable[traceback.FrameSummary]
) -> RunFailure:
    """Return the failure of a run that did not end in time; ``stack`` is where it was then."""
    message = (
        f"did not end in {limit_s:g} s; what it runs in is left behind. Raise explorer.max_timeout "
        f"if it needs longer."
    )
    where = _where(stack, order.workflow.cls)
    return _failure(Outcome.TIMEOUT, message, order=order, attempt=attempt, where=where)


def not_judged(order: RunOrder, *, message: str, attempt: int) -> RunFailure:
    """Return the failure of a run whose answer took too much to judge."""
    return _failure(Outcome.TIMEOUT, message, order=order, attempt=attempt, where="", is_final=True)


def cut_short(order: RunOrder) -> RunFailure:
    """Return the end of a run that is not waited for any longer."""
    message = "is not waited for (explorer.over_rollout, explorer.dynamic_timeout)."
    cut = _failure(Outcome.TIMEOUT, message, order=order, attempt=1, where="", is_final=True)
    return replace(cut, is_cut=True)


def _failure(
    outcome: Outcome,
    message: str,
    *,
    order: RunOrder,
    attempt: int,
    where: str,
    is_final: bool = False,
) -> RunFailure:
    return RunFailure(
        outcome=outcome,
        workflow=order.workflow.name,
        plugin=order.workflow.plugin,
        task_id=f"{order.key.batch}/{order.key.task} ({order.task.origin})",
        run=order.key.run,
        message=message,
        where=where,
        attempt=attempt,
        is_final=is_final,
    )


def _where(frames: Iterable[traceback.FrameSummary], cls: type[Workflow]) -> str:
    """Return file and line of the innermost frame in a file of the workflow's own."""
    files = _own_files(cls)
    own = [frame for frame in frames if frame.filename in files]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def _own_files(cls: type[Workflow]) -> set[str]:
    """Return the files of the methods of the class and its bases, up to ``Workflow``.

    The bases that this package offers are not where a user looks first.
    """
    owners = cls.__mro__[: cls.__mro__.index(Workflow)]
    users = [owner for owner in owners if not owner.__module__.startswith("trinity.common.")]
    methods = [value for owner in users or owners for value in vars(owner).values()]
    return {method.__code__.co_filename for method in methods if inspect.isfunction(method)}


def _one_line(text: str) -> str:
    return " ".join(text.split())
