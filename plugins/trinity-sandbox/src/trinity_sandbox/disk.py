"""What the files of a session's folder take on their disk, also while programs write them."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from trinity_sandbox.trees import LEAVE, walk

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

__all__ = ["DiskLimit", "bytes_in", "is_nearly_full"]

_KEPT_FREE = 256 << 20  # of the disk, where a command's files are limited
_INODE = 512  # an empty file takes room, too
_LOOKS_S = 0.005  # at one time: other limits wait meanwhile


class DiskLimit:
    """Looks whether a session's files take more than they may, a few milliseconds at a time.

    A look at many files goes on where the one before ended. Counted are the files below the folder,
    and those that were deleted and that a process has still open.

    Args:
        folder: of the session.
        most: bytes; 0: no limit.
        stdin: a descriptor of the file that the command reads, which is not its own.
    """

    def __init__(self, folder: Path, most: int, stdin: int) -> None:
        self._folder, self._most = folder, most
        self._stdin = os.fstat(stdin).st_ino
        self._pids: Sequence[int] = ()
        self._sizes, self._taken = self._all_sizes(), 0

    def is_passed(self, pids: Sequence[int]) -> bool:
        """Return whether the files took more at one of the last looks, or the disk is nearly full.

        Args:
            pids: the command's processes as of now.
        """
        if not self._most:
            return False
        if is_nearly_full(self._folder):
            return True
        self._pids = pids
        end = time.monotonic() + _LOOKS_S
        for size in self._sizes:
            self._taken += size
            if self._taken > self._most:
                return True
            if time.monotonic() > end:
                return False
        self._sizes, self._taken = self._all_sizes(), 0
        return False

    def close(self) -> None:
        """Close the folder that was looked at last."""
        self._sizes.close()

    def _all_sizes(self) -> Generator[int, None, None]:
        with suppress(OSError):  # a folder was moved: what is left of it is for the next look
            yield from _sizes_below(self._folder)
        yield from self._sizes_without_name()

    def _sizes_without_name(self) -> Generator[int, None, None]:
        """Yield what each file takes that has no name left, and that a process can still write."""
        disk, known = os.stat(self._folder).st_dev, {self._stdin}
        for pid in self._pids:
            yield 0  # time passes
            with suppress(OSError):  # it ended, or shows this user nothing
                for number in os.listdir(f"/proc/{pid}/fd"):
                    found = _open_file(f"/proc/{pid}/fd/{number}")
                    if found and found.st_dev == disk and found.st_ino not in known:
                        known.add(found.st_ino)
                        yield _size(found)


def _open_file(path: str) -> os.stat_result | None:
    """Return what is known of an open file; None: it has a name, or was closed."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found if found.st_nlink == 0 and stat.S_ISREG(found.st_mode) else None


def is_nearly_full(folder: Path) -> bool:
    """Return whether a folder's disk has less than 256 MB left."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < _KEPT_FREE


def bytes_in(folder: Path) -> int:
    """Return the bytes that a folder's files take on their disk; no process may write them."""
    return sum(_sizes_below(folder))


def _sizes_below(folder: Path) -> Generator[int, None, None]:
    """Yield the bytes that each file and folder takes; the user may look into all of them."""
    for step, at, name in walk(folder, opens=os.R_OK | os.X_OK):
        if step != LEAVE:
            with suppress(OSError):  # it was deleted meanwhile
                yield _size(os.stat(name, dir_fd=at, follow_symlinks=False))


def _size(found: os.stat_result) -> int:
    return 512 * found.st_blocks + _INODE
