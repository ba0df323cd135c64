"""How a rollout failed, as data, and its traceback in the log of its process."""

from __future__ import annotations

import inspect
import logging
import re
import threading
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trinity.common.outcome import Outcome, RunFailure
from trinity.common.secrets import masked
from trinity.common.value_checks import bounded, chain_of, text_of
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
    TrinityError,
    UnknownComponentError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from traceback import FrameSummary

    from trinity.explorer.requests import RolloutRequest

SHOWN_FAILURES = 3  # kinds of failure
_NUMBER = r"0x[0-9a-f]+|\d+"  # or an address
# Every run would meet these, and repeating helps nobody: the user must change something.
FATAL = (ConfigError, ConflictError, DataError, PluginError, UnknownComponentError)


def failure_of(error: BaseException, *, request: RolloutRequest, attempt: int) -> RunFailure:
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
        f"{type(error).__name__}: {_error_text(error)}",
        request=request,
        attempt=attempt,
        where=_where(traceback.extract_tb(error.__traceback__), request.workflow.cls),
        is_final=isinstance(error, (BadTaskError, JudgementCutError)),
    )


def _error_text(error: BaseException) -> str:
    """Return the text of an error; a client of others hides ours, such as that of a limit."""
    text = text_of(error)
    causes = chain_of(error, causes_only=True)[1:]
    hidden = next((text_of(cause) for cause in causes if isinstance(cause, TrinityError)), "")
    return masked(text if hidden in text else f"{text} ({hidden})")


def timed_out(
    request: RolloutRequest, *, attempt: int, limit_s: float, stack: Iterable[FrameSummary]
) -> RunFailure:
    """Return the failure of a run that did not end in time; ``stack`` is where it was then."""
    message = (
        f"did not end in {limit_s:g} s; its thread or process is abandoned. Raise "
        f"explorer.max_timeout if it needs longer."
    )
    where = _where(stack, request.workflow.cls)
    return _failure(Outcome.TIMEOUT, message, request=request, attempt=attempt, where=where)


def not_judged(request: RolloutRequest, *, message: str, attempt: int) -> RunFailure:
    """Return the failure of a run whose answer took too much to judge."""
    return _failure(Outcome.TIMEOUT, message, request=request, attempt=attempt, is_final=True)


def cut_short(request: RolloutRequest) -> RunFailure:
    """Return the end of a run that is not waited for any longer."""
    message = "was cut off as a straggler (explorer.over_rollout, explorer.dynamic_timeout)."
    cut = _failure(Outcome.TIMEOUT, message, request=request, is_final=True)
    return replace(cut, is_cut=True)


def _failure(
    outcome: Outcome,
    message: str,
    *,
    request: RolloutRequest,
    attempt: int = 1,
    where: str = "",
    is_final: bool = False,
) -> RunFailure:
    return RunFailure(
        outcome=outcome,
        workflow=request.workflow.name,
        plugin=request.workflow.plugin,
        task_id=f"{request.key.batch}/{request.key.task} ({request.task.origin})",
        run=request.key.run,
        message=message,
        where=where,
        attempt=attempt,
        is_final=is_final,
    )


def _where(frames: Iterable[FrameSummary], cls: type[Workflow]) -> str:
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


def failure_lines(failed: Sequence[tuple[RunFailure, int]]) -> list[str]:
    """Return a line for each kind of failure: the first run that met it, and how many did."""
    kinds: dict[tuple[str, ...], list[tuple[RunFailure, int]]] = {}
    for failure, count in failed:
        kinds.setdefault(kind_of_failure(failure), []).append((failure, count))
    lines = [_line(alike) for alike in kinds.values()]
    num_others = len(lines) - SHOWN_FAILURES
    if num_others > 0:
        kinds_of = "kind" if num_others == 1 else "kinds"
        lines[SHOWN_FAILURES:] = [f"and {num_others} other {kinds_of} of failure, in trinity.log"]
    return lines


def kind_of_failure(failure: RunFailure) -> tuple[str, ...]:
    """Return what equal failures have in common; numbers in a message may differ."""
    message = re.sub(_NUMBER, "0", failure.message)
    return failure.outcome.value, failure.plugin, failure.workflow, failure.where, message


def _line(alike: Sequence[tuple[RunFailure, int]]) -> str:
    """Return the first failure of a kind, and how many more runs met it."""
    first = alike[0][0]
    # a request of several runs fails as one, and names the first
    num_others = sum(count for _, count in alike) - 1
    runs = "run" if num_others == 1 else "runs"
    return first.line() + (f" (and {num_others} more {runs} alike)" if num_others else "")


TRACEBACKS = "trinity.traceback"  # the logger of what stands in the log and is not handed on
logger = logging.getLogger(TRACEBACKS)

MAX_KINDS = 20  # written of one step; a message may hold something else each time
MAX_LETTERS = 20_000  # of one of them, its middle left out


@dataclass(slots=True)
class _Kind:
    first: RunFailure
    num_more: int = 0


class TracebackLog:
    """Writes each kind of failure of a step when it comes, how often it came at the step's end.

    Failures are alike if their tracebacks differ in nothing but the numbers of the last line.
    Any number of threads may call it.

    Attributes:
        has_notes: whether an attempt failed since the last step's end.
    """

    def __init__(self) -> None:
        self.has_notes = False
        self._kinds: dict[str, _Kind] = {}
        self._num_unwritten = 0
        self._lock = threading.Lock()

    def note(self, failure: RunFailure, text: str) -> None:
        """Write how an attempt failed, or count it if the step has that already.

        One that nobody waited for has not failed.

        Args:
            failure: what is told of it everywhere.
            text: its traceback; of a run that did not end, where it was.
        """
        if failure.is_cut:
            return
        key = re.sub(_NUMBER, "0", f"{failure.plugin} {failure.workflow}\n{text}")
        with self._lock:
            self.has_notes = True
            known = self._kinds.get(key)
            if known is not None:
                known.num_more += 1
                return
            if len(self._kinds) == MAX_KINDS:
                self._num_unwritten += 1
                return
            self._kinds[key] = _Kind(failure)
        logger.error("%s\n%s", failure.line(), _shortened(text.rstrip()))

    def end_step(self) -> None:
        """Write how often each of them came again, and forget them."""
        with self._lock:
            kinds, self._kinds, self.has_notes = self._kinds, {}, False
            num_unwritten, self._num_unwritten = self._num_unwritten, 0
        for kind in kinds.values():
            if kind.num_more:
                logger.error(
                    "%d more failed attempts of this step have the same traceback: %s",
                    kind.num_more, kind.first.line(),
                )  # fmt: skip
        if num_unwritten:
            logger.error(
                "%d more failed attempts of this step have other tracebacks (not logged)",
                num_unwritten,
            )


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an error and of its causes, as Python prints it."""
    return masked("".join(traceback.format_exception(bounded(error))))


def stack_text(stack: Iterable[FrameSummary]) -> str:
    """Return where a thread is, as Python prints it."""
    return "".join(["Where it was (most recent call last):\n", *traceback.format_list(stack)])


def _shortened(text: str) -> str:
    if len(text) <= MAX_LETTERS:
        return text
    half = MAX_LETTERS // 2
    return f"{text[:half]}\n... {len(text) - MAX_LETTERS} letters left out ...\n{text[-half:]}"
