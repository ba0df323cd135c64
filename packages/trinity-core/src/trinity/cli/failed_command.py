"""What a command that failed prints, and the code that it ends with."""

from __future__ import annotations

import errno
import os
import traceback

import typer

from trinity.cli.output import plain
from trinity.common.secrets import masked
from trinity.errors import RayLostError, TrinityError, WorkerLostError
from trinity.starting import INTERRUPTED, tell, was_interrupted

FINDINGS, INTERNAL_ERROR = 1, 3  # the other two, 0 and 2 (usage), are typer's own
_NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS}
_WRONG_PATH = {  # by what the system says: what to do
    errno.EACCES: "Let this user read and write it, or use another path.",
    errno.EPERM: "Let this user read and write it, or use another path.",
    errno.ENOENT: "Use a path that exists.",
    errno.ENOTDIR: "A part of the path is a file. Use another path.",
    errno.EISDIR: "It is a folder. Use a file.",
    errno.ENAMETOOLONG: "Use a shorter path.",
    errno.ELOOP: "Its links form a loop. Use another path.",
}


def failed(error: BaseException) -> int:
    """Say what went wrong; return the code."""
    if was_interrupted():  # and this is what a library made of it
        return INTERRUPTED
    if isinstance(error, (RayLostError, WorkerLostError)):
        tell(lost=masked(str(error)).partition(". ")[0])
    line = str(error) if isinstance(error, TrinityError) else ""
    if isinstance(error, OSError):
        line = _of_the_system(error)
    from trinity.common.memory import address_space_remark
    from trinity.common.value_checks import text_of

    remark = address_space_remark(error)
    if remark:
        line = f"{(line or f'{type(error).__name__}: {text_of(error)}').rstrip('.')}.{remark}"
    if line:
        return reported(f"Error: {line}", FINDINGS)
    line = (
        f"Internal error: {type(error).__name__}: {text_of(error)}. Set TRINITY_DEBUG=1 for more."
    )
    return reported(line, INTERNAL_ERROR)


def _of_the_system(error: OSError) -> str:
    """Return what the system refused, and what to do; empty: it is no file's affair."""
    path = plain(str(error.filename2 or error.filename or ""))
    if error.errno in _NO_ROOM:
        where = f"{path} cannot be written" if path else "a file cannot be written"
        return f"{where}: {error.strerror}. Free space, or write to another disk."
    if error.errno in _WRONG_PATH and path:
        return f"{path} cannot be used: {error.strerror}. {_WRONG_PATH[error.errno]}"
    return ""


def reported(line: str, code: int) -> int:
    """Print a line as an error; return the code."""
    if os.environ.get("TRINITY_DEBUG") == "1":
        traceback.print_exc()
    typer.echo(masked(line), err=True)
    return code
