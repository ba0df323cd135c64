"""Say what to do when the disk of a run is full."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trinity.errors import RunFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["explained_when_full"]

_CANNOT_WRITE = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS}


@contextmanager
def explained_when_full(directory: Path) -> Iterator[None]:
    """Turn the system's error for a full disk into one with the place and the remedy.

    Raises:
        RunFailedError: a file of the run could not be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        raise RunFailedError(
            f"a file of the run in {error.filename or directory} could not be written: "
            f"{error.strerror}. Make room or set checkpoint_root_dir to another disk, then run the "
            f"same command: it goes on from the last complete checkpoint."
        ) from error
