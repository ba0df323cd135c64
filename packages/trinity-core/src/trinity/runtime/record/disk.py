"""Say what to do when a file of a run cannot be written or read."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import RunFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

_CANNOT_WRITE = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS}


def is_full(error: BaseException) -> bool:
    """Return whether the system said that there is no room, or none that may be written to."""
    return isinstance(error, OSError) and error.errno in _CANNOT_WRITE


@contextmanager
def explained_when_full(directory: Path) -> Iterator[None]:
    """Turn the system's error for a file of the run into one with the place and the remedy.

    Raises:
        RunFailedError: the disk is full, or a file of the run cannot be used.
    """
    try:
        yield
    except OSError as error:
        path = str(error.filename2 or error.filename or "")
        if is_full(error):
            raise RunFailedError(
                f"a file of the run in {path or directory} could not be written: "
                f"{error.strerror}. Make room or set checkpoint_root_dir to another disk, then run "
                f"the same command: it goes on from the last complete checkpoint."
            ) from error
        if not path or not Path(path).absolute().is_relative_to(directory.absolute()):
            raise
        raise RunFailedError(
            f"{path} cannot be used: {error.strerror}. It belongs to the run: let it be a file (or "
            f"folder) that can be read and written, or move it away, then run the same command."
        ) from error
