"""Say what to do when the disk of a run is full."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trinity.errors import RunFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["explained_when_full", "is_full"]

_CANNOT_WRITE = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS}


def is_full(error: BaseException) -> bool:
    """Return whether the system said that there is no room, or none that may be written to."""
    return isinstance(error, OSError) and error.errno in _CANNOT_WRITE


@contextmanager
def explained_when_full(directory: Path) -> Iterator[None]:
    """Turn the system's error for a full disk into one with the place and the remedy.

    Raises:
        RunFailedError: a file of the run could not be written.
    """
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise RunFailedError(
            f"a file of the run in {error.filename or directory} could not be written: "
            f"{error.strerror}. Make room or set checkpoint_root_dir to another disk, then run the "
            f"same command: it goes on from the last complete checkpoint."
        ) from error
