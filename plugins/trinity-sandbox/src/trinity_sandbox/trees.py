"""Walk and delete folders that a program filled: of any depth, and never through a link.

A program nests folders deeper than Python recurses, than a path may be long, and than a process may
have files open. So nothing here recurses, joins paths, or holds more than a few descriptors. The
launcher imports this file, which therefore imports nothing that Python has not loaded by then.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False  # as in the launcher
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

__all__ = ["ENTER", "FILE", "LEAVE", "empty_tree", "give_tree", "remove_tree", "walk"]

FILE, ENTER, LEAVE = "file", "enter", "leave"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_HANDLE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW


def walk(top: str | os.PathLike[str], *, opens: int = 0) -> Iterator[tuple[str, int, str]]:
    """Yield each thing below a folder: what it is, a descriptor of its folder, and its name.

    It is ``FILE`` for all but folders (a link is a file, wherever it leads), ``ENTER`` for a folder
    before what it holds, and ``LEAVE`` for the same folder afterwards. The descriptor is open until
    the next one is asked for; ``os.stat(name, dir_fd=..., follow_symlinks=False)`` and the like
    take it. The caller may change the mode of an ``ENTER``, and delete a ``FILE`` and a ``LEAVE``.

    Args:
        top: the folder; it is not among what is yielded.
        opens: ``os.R_OK | os.X_OK``, say: this user takes these rights where a folder of its own
            lacks one of them. A folder that cannot be opened all the same is left at once.

    Raises:
        OSError: ``top`` cannot be opened, or a folder was moved to another one meanwhile.
    """
    here = _opened(top, None, opens)
    above: list[tuple[tuple[int, int], str, list[str]]] = []
    try:
        folders = yield from _files(here)
        while folders or above:
            if folders:
                name = folders.pop()
                yield ENTER, here, name
                try:
                    below = _opened(name, here, opens)
                except OSError:  # it is gone, or of another user
                    yield LEAVE, here, name
                    continue
                above.append((_identity(here), name, folders))
                os.close(here)
                here = below
                folders = yield from _files(here)
            else:
                identity, name, folders = above.pop()
                up = os.open("..", _FOLDER, dir_fd=here)
                os.close(here)
                here = up
                if _identity(here) != identity:
                    raise OSError(errno.ESTALE, f"the folder {name} was moved meanwhile")
                yield LEAVE, here, name
    finally:
        os.close(here)


def _files(here: int) -> Generator[tuple[str, int, str], None, list[str]]:
    """Yield what is no folder, and return the names of the folders."""
    folders = []
    with os.scandir(here) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                yield FILE, here, entry.name
    return folders


def _opened(name: str | os.PathLike[str], at: int | None, opens: int) -> int:
    """Return a descriptor of a folder, whose mode is changed where this user lacks a right.

    The mode is changed by a handle: at the name may stand a link by then.
    """
    if not opens:
        return os.open(name, _FOLDER, dir_fd=at)
    handle = os.open(name, _HANDLE, dir_fd=at)
    try:
        if not os.access(".", opens, dir_fd=handle):
            _take(handle, opens)
        return os.open(".", _FOLDER, dir_fd=handle)
    finally:
        os.close(handle)


def _take(handle: int, rights: int) -> None:
    try:  # noqa: SIM105 - the launcher would import contextlib for it
        os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(os.fstat(handle).st_mode) | rights << 6)
    except OSError:  # of another user, or a disk that is only read: perhaps it can be opened
        pass


def _identity(folder: int) -> tuple[int, int]:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino


def empty_tree(top: str | os.PathLike[str]) -> None:
    """Delete all that a folder holds.

    Raises:
        OSError: something could not be deleted: the first one; all else is.
    """
    failure = None
    for step, at, name in walk(top, opens=os.R_OK | os.W_OK | os.X_OK):
        try:
            if step == FILE:
                os.unlink(name, dir_fd=at)
            elif step == LEAVE:
                os.rmdir(name, dir_fd=at)
        except FileNotFoundError:
            pass
        except OSError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def give_tree(top: str | os.PathLike[str], uid: int, gid: int) -> None:
    """Make a user and a group own a folder and all that it holds; links themselves, too.

    Raises:
        OSError: this user may not.
    """
    os.chown(top, uid, gid)
    for step, at, name in walk(top):
        if step != LEAVE:
            os.chown(name, uid, gid, dir_fd=at, follow_symlinks=False)


def remove_tree(top: str | os.PathLike[str]) -> None:
    """Delete a folder and all that it holds.

    Raises:
        OSError: something could not be deleted: the first one; all else is.
    """
    empty_tree(top)
    os.rmdir(top)
