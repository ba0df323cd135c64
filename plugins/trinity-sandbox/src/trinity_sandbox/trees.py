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

__all__ = [
    "BORROW",
    "ENTER",
    "FILE",
    "LEAVE",
    "SKIP",
    "TAKE",
    "empty_tree",
    "give_tree",
    "remove_tree",
    "walk",
]

FILE, ENTER, LEAVE = "file", "enter", "leave"
TAKE, BORROW, SKIP = "take", "borrow", "skip"  # what to do where a folder was shut
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_HANDLE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW


def walk(
    top: str | os.PathLike[str], *, opens: int = 0, shut: str = TAKE
) -> Iterator[tuple[str, int, str]]:
    """Yield each thing below a folder: what it is, a descriptor of its folder, and its name.

    It is ``FILE`` for all but folders (a link is a file, wherever it leads), ``ENTER`` for a folder
    before what it holds, and ``LEAVE`` for the same folder afterwards. The descriptor is open until
    the next one is asked for; ``os.stat(name, dir_fd=..., follow_symlinks=False)`` and the like
    take it. The caller may change the mode of an ``ENTER``, and delete a ``FILE`` and a ``LEAVE``.

    Args:
        top: the folder; it is not among what is yielded.
        opens: ``os.R_OK | os.X_OK``, say: the rights that this user needs for a folder.
        shut: what to do with a folder that lacks one of them. ``TAKE``: this user takes them for a
            folder of its own. ``BORROW``: likewise, and it has its mode again when it is left.
            ``SKIP``: it is left at once, as is a folder that cannot be opened all the same.

    Raises:
        OSError: ``top`` cannot be opened, or a folder was moved to another one meanwhile.
    """
    here, was = _opened(top, None, opens, shut)
    above: list[tuple[tuple[int, int], str, list[str], _Modes]] = []
    try:
        folders = yield from _files(here)
        while folders or above:
            if folders:
                name = folders.pop()
                yield ENTER, here, name
                try:
                    below, modes = _opened(name, here, opens, shut)
                except OSError:  # it is gone, or of another user
                    yield LEAVE, here, name
                    continue
                above.append((_identity(here), name, folders, was))
                os.close(here)
                here, was = below, modes
                folders = yield from _files(here)
            else:
                identity, name, folders, modes = above.pop()
                here, was = _left(here, was), modes
                if _identity(here) != identity:
                    was = None  # of another folder
                    raise OSError(errno.ESTALE, f"the folder {name} was moved meanwhile")
                yield LEAVE, here, name
    finally:
        _leave_all(here, was, [(identity, modes) for identity, _, _, modes in above])


_Modes = tuple[int, int] | None  # of a folder, before and while rights are borrowed


def _left(here: int, was: _Modes) -> int:
    """Return the folder above, in place of one that gets its mode again."""
    up = os.open("..", _FOLDER, dir_fd=here)
    _put_back(here, was)
    os.close(here)
    return up


def _leave_all(here: int, was: _Modes, above: list[tuple[tuple[int, int], _Modes]]) -> None:
    """Give a folder and those above it their modes again, as far as none was moved."""
    try:
        while any(modes for _, modes in above):
            identity, modes = above.pop()
            here, was = _left(here, was), modes
            if _identity(here) != identity:
                was = None
                break
    except OSError:  # one cannot be reached any more
        pass
    finally:
        _put_back(here, was)
        os.close(here)


def _put_back(folder: int, was: _Modes) -> None:
    """Give a folder its mode again, unless it has got another one meanwhile."""
    try:
        if was and stat.S_IMODE(os.fstat(folder).st_mode) == was[1]:
            os.chmod(f"/proc/self/fd/{folder}", was[0])
    except OSError:  # it was deleted
        pass


def _files(here: int) -> Generator[tuple[str, int, str], None, list[str]]:
    """Yield what is no folder, and return the names of the folders."""
    folders = []
    try:
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                else:
                    yield FILE, here, entry.name
    except FileNotFoundError:  # it was deleted meanwhile
        pass
    return folders


def _opened(
    name: str | os.PathLike[str], at: int | None, opens: int, shut: str
) -> tuple[int, _Modes]:
    """Return a descriptor of a folder, and its modes if this user borrowed a right.

    The mode is changed by a handle: at the name may stand a link by then.

    Raises:
        OSError: it cannot be opened.
    """
    if not opens:
        return os.open(name, _FOLDER, dir_fd=at), None
    handle = os.open(name, _HANDLE, dir_fd=at)
    was = None
    try:
        if not os.access(".", opens, dir_fd=handle):
            was = _taken(handle, opens) if shut != SKIP else None
            if was is None and shut != TAKE:  # perhaps it opens, but nothing in it
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        return os.open(".", _FOLDER, dir_fd=handle), was if shut == BORROW else None
    except OSError:
        _put_back(handle, was if shut == BORROW else None)
        raise
    finally:
        os.close(handle)


def _taken(handle: int, rights: int) -> _Modes:
    """Take rights for a folder, and return its modes; None: it has another owner, say."""
    before = stat.S_IMODE(os.fstat(handle).st_mode)
    after = before | rights << 6
    try:
        os.chmod(f"/proc/self/fd/{handle}", after)
    except OSError:
        return None
    return before, after


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
