"""Every error a user can meet, each saying what is wrong, where, and what to do now.

All of them survive pickling: they take one finished message and add no state of their own, so that
an error raised in a worker process arrives as itself.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BadTaskError",
    "BufferClosedError",
    "CheckpointError",
    "ConfigError",
    "ConflictError",
    "DataError",
    "EngineBrokenError",
    "EnvError",
    "JudgementCutError",
    "ModelError",
    "NotSupportedYetError",
    "PluginError",
    "PromptTooLongError",
    "RayLostError",
    "RoomLostError",
    "RoomWaitsError",
    "RunFailedError",
    "TemplateRefusesError",
    "TrinityError",
    "UnknownComponentError",
    "WorkerLostError",
    "WorkerWaitsError",
    "WorkflowError",
    "did_you_mean",
    "unknown_name",
]

_MOST_LISTED = 20  # names that a message spells out


class TrinityError(Exception):
    """Something the user can act upon; the base of all errors below."""


class ConfigError(TrinityError, ValueError):
    """The configuration cannot be run as written."""


class NotSupportedYetError(ConfigError, NotImplementedError):
    """A published setting whose feature this version does not have."""


class DataError(TrinityError, ValueError):
    """A dataset, a row or a stored experience cannot be used."""


class PluginError(TrinityError, ImportError):
    """A plugin cannot be loaded, or does not do what it declares."""


class UnknownComponentError(TrinityError, ValueError):
    """No component has the name that was asked for."""


class ConflictError(TrinityError, ValueError):
    """One name is given by several parts and nothing says which is meant."""


class WorkflowError(TrinityError, RuntimeError):
    """A workflow returned something that is no list of experiences."""


class EnvError(TrinityError, RuntimeError):
    """An environment failed; a run that ends by it carries no reward."""


class BadTaskError(EnvError):
    """What a task asks for can never be done; its run is not made again, other tasks go on."""


class JudgementCutError(TrinityError, RuntimeError):
    """An answer cannot be judged in bounded time; its run is left out, and has no reward."""


class ModelError(TrinityError, RuntimeError):
    """A model cannot be loaded, or an engine failed while generating."""


class EngineBrokenError(ModelError):
    """An engine can answer nothing any more, whatever it is asked: a worker below it is gone.

    Over Ray the process of the engine is ended and another one takes its place.
    """


class PromptTooLongError(ModelError):
    """A prompt leaves no room for a reply, and may not be cut."""


class TemplateRefusesError(ModelError):
    """A chat template does not take the messages."""


class RunFailedError(TrinityError, RuntimeError):
    """A run stopped because too many of its rollouts failed."""


class WorkerLostError(TrinityError, RuntimeError):
    """The process of a worker ended without being asked to."""

    def __init__(self, worker: str, *, cause: str, is_final: bool = False) -> None:
        super().__init__(f"the process of {worker} was lost: {cause}")
        self.worker = worker
        self.cause = cause
        self.is_final = is_final  # no other process takes its place

    def __reduce__(self) -> tuple[object, ...]:
        return _worker_lost, (self.worker, self.cause, self.is_final)


class WorkerWaitsError(WorkerLostError):
    """A worker is there, and may not do what it is asked before it has what it waits for."""

    def __init__(self, worker: str, *, cause: str) -> None:
        super().__init__(worker, cause=cause)
        self.args = (f"{worker} waits: {cause}",)

    def __reduce__(self) -> tuple[object, ...]:
        return _worker_waits, (self.worker, self.cause)


RoomLostError = WorkerLostError  # their names before 0.2
RoomWaitsError = WorkerWaitsError


class RayLostError(TrinityError, RuntimeError):
    """A process of Ray itself is gone: no room of the run can be reached or started anew."""


class BufferClosedError(TrinityError, RuntimeError):
    """A buffer was closed; what it held has been handed out."""


class CheckpointError(TrinityError, RuntimeError):
    """A checkpoint cannot be read, or does not belong to this run."""


def _worker_lost(worker: str, cause: str, is_final: bool) -> WorkerLostError:  # noqa: FBT001 -- unpickled
    return WorkerLostError(worker, cause=cause, is_final=is_final)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest known name, or an empty string.

    >>> did_you_mean("gpro", ["grpo", "gspo"])
    " Did you mean 'grpo'?"
    """
    close = difflib.get_close_matches(name, list(known), n=5, cutoff=0.6)
    swapped = [one for one in close if sorted(one) == sorted(name)]  # two letters, most often
    return f" Did you mean {(swapped or close)[0]!r}?" if close else ""


def unknown_name(kind: str, name: str, known: Iterable[str], *, list_by: str = "") -> str:
    """Return the message for an unknown name: the nearest one and the whole list.

    With ``list_by``, a command that lists them, a long list is left to that.

    >>> unknown_name("advantage_fn", "gropo", ["ppo", "grpo"])
    "no advantage_fn named 'gropo'. Did you mean 'grpo'? Known: grpo, ppo."
    """
    names = sorted(known)
    message = f"no {kind} named {name!r}.{did_you_mean(name, names)}"
    if list_by and len(names) > _MOST_LISTED:
        return f"{message} List them: {list_by}."
    return f"{message} Known: {', '.join(names) if names else 'none'}."


def _worker_waits(worker: str, cause: str) -> WorkerWaitsError:
    return WorkerWaitsError(worker, cause=cause)
