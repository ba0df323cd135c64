"""How the program ``trinity`` ends: by Ctrl-C with 130, in one line, whatever it was doing.

    python --> import trinity --> program --> command --> exit functions --> taken apart
               |<----- leave at once ---->|  interrupt  |<- leave at once ->| unheard

Nothing has begun before a command, so nothing is unwound. In a command ``KeyboardInterrupt`` closes
what was opened; but not where something is imported: libraries lose it there, or make another error
of it. This module is the first that is imported, and imports little.

``os._exit(0)`` in the middle of a command would say that all went well: it raises ``SystemExit``.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys

TYPE_CHECKING = False  # importing typing takes as long as all above
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn

INTERRUPTED = 130  # 128 and the number of SIGINT, as a shell has it
_BEFORE = "stopped at once, before the command had begun: nothing was started"
_IMPORTING = "<frozen importlib._bootstrap>"  # the file of the functions that import
_heard: list[int] = []  # signals that became KeyboardInterrupt
_end = os._exit
_codes: list[int] = []  # of the command, once it has ended
parent: list[tuple[int, int, int]] = []  # this process, the pipe to who waits for it, restarts


class Loading:
    """Watches over an import, where this process is the program itself."""

    def __enter__(self) -> None:
        if _is_program():
            _replace(signal.default_int_handler, _leave)

    def __exit__(self, *_: object) -> None:
        _replace(_leave, signal.default_int_handler)


def program_begins() -> None:
    """Leave at once from now on."""
    _replace(signal.default_int_handler, _leave)
    atexit.register(_be_deaf)  # the first that is registered is the last that is called
    os._exit = _guarded_exit(os.getpid())  # type: ignore[assignment]  # of this name alone


def command_begins() -> None:
    """Raise ``KeyboardInterrupt`` from now on, and leave at once where something is imported."""
    _replace(_leave, _interrupt)


def was_interrupted() -> bool:
    """Return whether a command was: an error may be what a library made of it."""
    return bool(_heard)


def command_ended(code: int) -> None:
    """Leave at once from now on, with the command's own code unless that says that all is well."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        os._exit(code or INTERRUPTED)

    _codes.append(code)
    tell(ended=code)
    _replace(_leave, end)
    _replace(_interrupt, end)
    # Python notes a KeyboardInterrupt that leaves a text that is executed, as those of dataclasses,
    # and would kill itself by SIGINT as it ends, though it was caught. The next text clears that.
    exec("")


def num_restarts() -> int:
    """Return how often this run was started again by the command that it belongs to."""
    return parent[0][2] if parent else 0


def tell(**facts: object) -> None:
    """Tell the process that waits for this one, where one does."""
    if parent and parent[0][0] == os.getpid():  # a process that was forked from it is not it
        import json

        os.write(parent[0][1], f"{json.dumps(facts)}\n".encode())


def leave(line: str, *, code: int = INTERRUPTED) -> NoReturn:
    """End this process with one line, and nothing else."""
    try:
        os.write(2, f"{line}\n".encode())
        tell(said=line)
    finally:
        os._exit(code)


def leave_hung(line: str) -> None:
    """Do so where this is the program, which nothing else would end; a script is not ours."""
    if os._exit is not _end:
        leave(line, code=1)


def _guarded_exit(owner: int) -> Callable[[int], NoReturn]:
    """Return what ``os._exit`` is in process ``owner``; one that is forked ends as it likes."""

    def guarded(status: int) -> NoReturn:
        if status or os.getpid() != owner:
            _end(status)
        if _codes:
            _end(_codes[0])
        caller = sys._getframe(1)
        place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        why = "os._exit(0), and the command has not finished. Raise an error instead"
        os.write(2, f"{place}: {why}.\n".encode())  # a thread that ends by SystemExit says nothing
        raise SystemExit(why)

    return guarded


def _is_program() -> bool:
    """Return whether this is ``trinity`` or ``python -m trinity``, and no process of it."""
    given, name = sys.orig_argv, sys.argv[0] if sys.argv else ""
    if name == "-m":  # so long as Python imports the package of the module that it was told
        return "-m trinity " in f"{' '.join(given)} "
    return os.path.basename(name) == "trinity" and name in given


def _replace(old: object, new: object) -> None:
    """Set a handler of SIGINT where another one is set, and not one of somebody else."""
    if signal.getsignal(signal.SIGINT) is old:
        signal.signal(signal.SIGINT, new)  # type: ignore[arg-type]  # as getsignal returns it


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    leave(_BEFORE)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    at = frame
    while at is not None:
        if at.f_code.co_filename == _IMPORTING:
            leave("stopped at once")
        at = at.f_back
    _heard.append(number)
    raise KeyboardInterrupt


def _be_deaf() -> None:
    """Ignore SIGINT: Python gives its handlers up before it has ended, and would die of one."""
    if signal.getsignal(signal.SIGINT) is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
