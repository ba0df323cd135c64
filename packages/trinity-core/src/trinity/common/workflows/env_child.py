"""The side of an environment's process: make the object, answer messages with its methods."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import signal
import struct
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from trinity.errors import BadTaskError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["LENGTH", "Failure", "Value", "framed", "main"]

LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Value:
    """What a method returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failure:
    """What a method raised."""

    text: str  # "ValueError: no such game"
    where: str  # file:line, the innermost
    is_import: bool
    is_bad_task: bool  # a BadTaskError


def framed(message: Any) -> bytes:  # Any: what pickle takes
    """Return the message as it travels: its length, and its pickle."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def main(lifeline: int) -> None:
    """Answer messages until there are no more; the child's side."""
    _end_with_parent(lifeline)
    messages = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what the object prints is no answer
    sys.stdout = sys.stderr
    made: Any = None  # the object
    while (message := _next(messages)) is not None:
        try:
            if made is None:
                made = _made(*message)
                answer: Value | Failure = Value(None)
            else:
                answer = Value(_called(made, *message))
            frame = framed(answer)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- the boundary around a plugin's code
            frame = framed(_failure_of(error))
        answers.write(frame)
        answers.flush()


def _end_with_parent(lifeline: int) -> None:
    """Let the kernel end this process when the other end of the pipe is closed.

    That needs neither the interpreter nor a thread: also a loop in C that never returns is ended,
    and with it what this process started.
    """
    import fcntl

    signal.signal(signal.SIGIO, signal.SIG_DFL)  # which ends the process
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _next(messages: BinaryIO) -> Any:
    head = messages.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return pickle.loads(messages.read(LENGTH.unpack(head)[0]))


def _made(path: list[str], target: str, arguments: dict[str, Any]) -> Any:
    sys.path[:] = path
    where, _, name = target.rpartition(":")
    found: Any = _module_of_file(where) if where.endswith(".py") else importlib.import_module(where)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ImportError(f"{where} has no {name!r}")
        found = getattr(found, part)
    return found(**arguments)


def _module_of_file(file: str) -> ModuleType:
    """Return the module of a file that no package has; its neighbours can be imported."""
    folder, base = os.path.split(os.path.abspath(file))
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(base.removesuffix(".py"), file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as error:
        raise ImportError(str(error)) from error
    return module


def _called(made: Any, method: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if method:
        return getattr(made, method)(*args, **options)
    return made.close() if hasattr(made, "close") else None


def _failure_of(error: BaseException) -> Failure:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
    return Failure(
        f"{type(error).__name__}: {error}",
        where,
        is_import=isinstance(error, ImportError),
        is_bad_task=isinstance(error, BadTaskError),
    )
