"""Write a file whole or not at all, and know it again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["place_of", "stamp_of", "write_file"]

Stamp = tuple[str, int, int]  # path, time of its last change, size


def place_of(text: str) -> Path:
    """Return the file that a person means; a link is followed to what it points at.

    Raises:
        OSError: there is no user of that name, or links go round in a circle.
    """
    try:
        return Path(text.strip()).expanduser().resolve()
    except RuntimeError as error:
        raise OSError(str(error)) from error


def stamp_of(path: Path) -> Stamp | None:
    """Return what changes with a file; None: there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return str(path), stat.st_mtime_ns, stat.st_size


def write_file(path: Path, text: str) -> None:
    """Replace a file by a text, whole or not at all; one that is made is its owner's alone."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
