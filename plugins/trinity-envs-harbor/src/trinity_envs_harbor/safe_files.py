"""Work on folders that an agent wrote, without following a link out of them.

All of its processes have ended before, so that nothing changes in between.
"""

from __future__ import annotations

import math
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import EnvError
from trinity_sandbox.trees import FILE, LEAVE, remove_tree, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "MOST_FOLDERS",
    "copied_inside",
    "empty_folder",
    "opened_up",
    "plain_parts",
    "read_inside",
    "size_with_holes",
    "written_inside",
]

MOST_FOLDERS = 100  # one in the other, of an artifact: a copy recurses
_LONGEST_PATH = 2000  # bytes, of a folder in an artifact: the kernel takes 4,096 in all
_MOST_BYTES = 1 << 20  # of a file that is read


def plain_parts(path: str) -> list[str]:
    """Return the parts of a path below a root; ``..`` is resolved as text.

    >>> plain_parts("/app/../logs/./a")
    ['logs', 'a']
    """
    return [part for part in os.path.normpath(f"/{path}").split("/") if part]


def empty_folder(root: Path, path: str) -> Path:
    """Make an empty folder below a root, whatever stands there; return it."""
    *above, name = plain_parts(path)
    folder = _folder_at(root, above) / name
    _remove(folder)
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def copied_inside(
    source: Path, root: Path, path: str, *, keeps: Callable[[Path], bool] = Path.is_symlink
) -> None:
    """Copy a file, or what a folder holds, to a path below a root; links stay links.

    What stands in the way is replaced. Devices, sockets and pipes are left out.

    Args:
        source: the file or folder.
        root: where ``/`` is.
        path: below it.
        keeps: whether a link is copied; all are.
    """
    parts = plain_parts(path)
    is_folder = _is_folder(source)
    target = _folder_at(root, parts if is_folder else parts[:-1])
    if is_folder:
        _merge(source, target, keeps)
    elif parts:
        _copy(source, target / parts[-1], keeps)


def _folder_at(root: Path, parts: Iterable[str]) -> Path:
    """Return a folder below a root, made where it is missing or something else."""
    folder = root
    for part in parts:
        folder /= part
        if not _is_folder(folder):
            _remove(folder)
            folder.mkdir()
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            folder.chmod(0o777)  # who wrote it shut it
    return folder


def _merge(source: Path, target: Path, keeps: Callable[[Path], bool]) -> None:
    for entry in sorted(source.iterdir()):
        below = target / entry.name
        if _is_folder(entry):
            _merge(entry, _folder_at(target, [entry.name]), keeps)
            below.chmod(stat.S_IMODE(entry.stat().st_mode) | 0o700)
        else:
            _copy(entry, below, keeps)


def _copy(source: Path, target: Path, keeps: Callable[[Path], bool]) -> None:
    mode = source.lstat().st_mode
    if not (stat.S_ISREG(mode) or (stat.S_ISLNK(mode) and keeps(source))):
        return
    _remove(target)
    shutil.copy2(source, target, follow_symlinks=False)


def written_inside(root: Path, path: str, text: str) -> None:
    """Write a file below a root in place of what stands there."""
    *above, name = plain_parts(path)
    target = _folder_at(root, above) / name
    _remove(target)
    target.write_text(text, encoding="utf-8", errors="surrogatepass")


def read_inside(root: Path, path: str) -> bytes | None:
    """Return what a file below a root holds; None: there is none.

    Raises:
        EnvError: it is no file, lies behind a link, or has more than 1 MB.
    """
    folder = root
    *above, name = plain_parts(path)
    for part in above:
        folder /= part
        if not os.path.lexists(folder):
            return None
        if not _is_folder(folder):
            raise EnvError(f"{path} lies behind a link: /{folder.relative_to(root)} is no folder.")
    try:
        handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise EnvError(f"{path} is no file.")
        if found.st_size > _MOST_BYTES:
            raise EnvError(f"{path} has {found.st_size} bytes, more than {_MOST_BYTES}.")
        return os.read(handle, _MOST_BYTES)
    finally:
        os.close(handle)


def opened_up(path: Path) -> None:
    """Let all that an agent wrote below a path be read and deleted, whatever it shut."""
    if path.is_symlink():
        return
    path.chmod(stat.S_IMODE(path.stat().st_mode) | (0o700 if path.is_dir() else 0o400))
    if not path.is_dir():
        return
    for step, at, name in walk(path, opens=os.R_OK | os.W_OK | os.X_OK):
        if step == FILE:
            mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                os.chmod(name, stat.S_IMODE(mode) | 0o400, dir_fd=at)


def size_with_holes(path: Path) -> float:
    """Return the bytes that copies of a file, or of all files of a folder, take at most.

    Infinite: folders are nested deeper than is copied.
    """
    if not _is_folder(path):
        return path.lstat().st_size
    size, above = 0, list[int]()
    for step, at, name in walk(path, opens=os.R_OK | os.X_OK):
        if step == FILE:
            size += os.stat(name, dir_fd=at, follow_symlinks=False).st_size
        elif step == LEAVE:
            above.pop()
        else:
            above.append(len(os.fsencode(name)) + 1)
            if len(above) > MOST_FOLDERS or sum(above) > _LONGEST_PATH:
                return math.inf
    return size


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _remove(path: Path) -> None:
    if _is_folder(path):
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)
