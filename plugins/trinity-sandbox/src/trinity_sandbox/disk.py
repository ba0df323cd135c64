"""What the files of a session's folder take on their disk, also while programs write them."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from trinity_sandbox.trees import BORROW, LEAVE, SKIP, walk

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

__all__ = ["FULL", "DiskLimit", "bytes_in", "is_nearly_full", "kept_free"]

FULL = "disk_full"  # the reason where others may have filled it
_KEPT_FREE = 256 << 20  # of the disk, where a command's files are limited
_INODE = 512  # an empty file takes room, too
_LOOKS_S = 0.005  # at one time: other limits wait meanwhile
_LOOKS_LONGER_S = 0.05  # where the disk has lost more than the command may take
_LAST_LOOK_S = 1.0  # where the disk is nearly full, so that the command ends
_MOST_BROKEN = 5


class DiskLimit:
    """Looks whether a session's files take more than they may, a few milliseconds at a time.

    A look at many files goes on where the one before ended. Counted are the files below the folder,
    those that were deleted and that a process has still open, and what the input grew by. Folders
    that are shut are looked into if the disk has lost more than the files may take: their modes
    change for that moment.

    Args:
        folder: of the session.
        most: bytes; 0: no limit.
        stdin: a descriptor of the file that the command reads.
    """

    def __init__(self, folder: Path, most: int, stdin: int) -> None:
        self._folder, self._most, self._stdin = folder, most, stdin
        given = os.fstat(stdin)
        self._given, self._input = max(_size(given), given.st_size + _INODE), given.st_ino
        self._free = _free(folder)  # the most since the start
        self._has_lost = False  # more than the files may take
        self._pids: Sequence[int] = ()
        self._broken = 0  # looks in a row at which a program stopped a count, by moving folders say
        self._sizes, self._taken, self._is_whole = self._all_sizes(), 0, True

    def passed(self, pids: Sequence[int]) -> str:
        """Return "disk" if the files took more at one of the last looks; "": they did not.

        Or ``FULL``: the disk is nearly full, and the files take no more than they may.

        Args:
            pids: the command's processes as of now.
        """
        if not self._most:
            return ""
        self._pids = pids
        free = _free(self._folder)
        self._free = max(self._free, free)
        self._has_lost = self._free - free > self._most
        is_full = is_nearly_full(self._folder)
        if is_full:
            self._restart()
        longest_s = _LOOKS_LONGER_S if self._has_lost else _LOOKS_S
        if self._is_passed(time.monotonic() + (_LAST_LOOK_S if is_full else longest_s)):
            return "disk"
        return FULL if is_full else ""

    def _is_passed(self, end: float) -> bool:
        """Count until some time, and begin anew at once where a count broke off."""
        broken = self._broken + 1  # one look counts once: a launcher starts for a moment, say
        while self._broken < _MOST_BROKEN:
            for size in self._sizes:
                self._taken += size
                if self._taken > self._most:
                    return True
                if time.monotonic() > end:
                    return False
            self._broken = 0 if self._is_whole or not self._has_lost else broken
            self._restart()
            if not self._broken:
                return False
        return True

    def close(self) -> None:
        """Close the folder that was looked at last, and give it the mode that it had."""
        self._sizes.close()

    def _restart(self) -> None:
        self._sizes.close()
        self._sizes, self._taken, self._is_whole = self._all_sizes(), 0, True

    def _all_sizes(self) -> Generator[int, None, None]:
        try:
            yield from _sizes_below(self._folder, BORROW if self._has_lost else SKIP)
        except OSError:  # a folder was moved: what is left of it is for the next count
            self._is_whole = False
        yield max(0, _size(os.fstat(self._stdin)) - self._given)
        yield from self._sizes_without_name()

    def _sizes_without_name(self) -> Generator[int, None, None]:
        """Yield what each file takes that has no name left, and that a process can still write."""
        disk, known = os.stat(self._folder).st_dev, {self._input}
        for pid in self._pids:
            yield 0  # time passes
            try:
                numbers = os.listdir(f"/proc/{pid}/fd")
            except PermissionError:  # of a program that this user may run and not read
                self._is_whole = False
                continue
            except OSError:  # it ended
                continue
            for number in numbers:
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


def kept_free(folder: Path) -> int:
    """Return the bytes that are kept free on a folder's disk: 256 MB, or a tenth of a small one."""
    disk = os.statvfs(folder)
    return min(_KEPT_FREE, disk.f_blocks * disk.f_frsize // 10)


def is_nearly_full(folder: Path) -> bool:
    """Return whether a folder's disk has less left than is kept free."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < kept_free(folder)


def _free(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize + disk.f_favail * _INODE


def bytes_in(folder: Path) -> int:
    """Return the bytes that a folder's files take on their disk; no process may write them.

    Folders that are shut are looked into, and have their modes again afterwards.
    """
    return sum(_sizes_below(folder, BORROW))


def _sizes_below(folder: Path, shut: str) -> Generator[int, None, None]:
    """Yield the bytes that each file and folder takes."""
    for step, at, name in walk(folder, opens=os.R_OK | os.X_OK, shut=shut):
        if step != LEAVE:
            with suppress(OSError):  # it was deleted meanwhile
                yield _size(os.stat(name, dir_fd=at, follow_symlinks=False))


def _size(found: os.stat_result) -> int:
    return 512 * found.st_blocks + _INODE
