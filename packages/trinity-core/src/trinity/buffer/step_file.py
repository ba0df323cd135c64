"""Files of experiences that grow by whole steps: a step is written to its end, or not at all."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.errors import BufferClosedError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience

logger = logging.getLogger(__name__)


class StepFile:
    """Appends the experiences of a step as JSON lines; what is left of a broken write is cut off.

    Args:
        path: of the file, made with its folder.
        setting: what the path is called in the configuration, for messages.

    Attributes:
        size: bytes of whole steps; None: nothing was written yet.
    """

    def __init__(self, path: Path | str, *, setting: str) -> None:
        self._path, self._setting = Path(path), setting
        self.size: int | None = None
        self._is_closed = False

    def write(self, experiences: Sequence[Experience]) -> None:
        """Append a step: all of it or nothing.

        Raises:
            BufferClosedError: the file was closed.
            DataError: the file cannot be written; what it held before is unharmed.
        """
        path = self._path
        if self._is_closed:
            raise BufferClosedError(f"{path} is closed; it accepts no more experiences")
        if not experiences:
            return
        lines = "".join(json.dumps(e.to_dict()) + "\n" for e in experiences).encode()
        try:
            size = self._whole_steps()
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
                self.size = _append(file, lines, after=size)
        except OSError as e:
            raise DataError(
                f"{len(experiences)} experiences cannot be written to {path}: {e.strerror or e}. "
                f"Its earlier content is intact. Free space, or change {self._setting}."
            ) from e

    def close(self) -> None:
        self._is_closed = True

    def _whole_steps(self) -> int:
        path = self._path
        if self.size is None or not path.exists() or path.stat().st_size < self.size:
            self.size = _size_of_whole_lines(path) if path.exists() else 0
        return self.size


def _append(file: Any, lines: bytes, *, after: int) -> int:  # Any: an unbuffered binary file
    """Write the lines at a place and return where they end; on an error cut the file back to it."""
    file.truncate(after)
    if after and os.pread(file.fileno(), 1, after - 1) != b"\n":
        lines = b"\n" + lines
    file.seek(after)
    written = 0
    try:
        while written < len(lines):
            written += file.write(lines[written:])
        os.fsync(file.fileno())
    except OSError:
        file.truncate(after)
        raise
    return after + written


def _size_of_whole_lines(path: Path) -> int:
    """Return the size of the file up to the end of its last whole row, which may lack its end."""
    content = path.read_bytes()
    size = content.rfind(b"\n") + 1
    try:
        is_row = isinstance(json.loads(content[size:]), dict)
    except ValueError:
        is_row = False
    return len(content) if is_row else size


def older_half(path: Path) -> Path:
    """Return where the older lines of such a file lie."""
    return path.with_name(f"{path.stem}.older{path.suffix}")


class RolloutFile:
    """Keeps the newest of what workflows returned, for people to read, within a limit.

    A file that has half of what it may have becomes the older half, in place of the one before, and
    another begins. A run that goes back to before that puts it back (``runtime/record/rewind.py``).

    Args:
        path: of the file.
        setting: what the path is called in the configuration, for messages.
        max_bytes: of both files, but for the last write.
    """

    def __init__(self, path: Path, *, setting: str, max_bytes: float) -> None:
        self._file = StepFile(path, setting=setting)
        self._path, self._max_bytes = path, max_bytes
        self._is_dropping_said = False

    def write(self, experiences: Sequence[Experience]) -> None:
        """Append experiences.

        Raises:
            DataError: the files cannot be written.
        """
        if self._path.is_file() and 2 * self._path.stat().st_size >= self._max_bytes:
            self._turn_over()
        self._file.write(experiences)

    def close(self) -> None:
        self._file.close()

    def _turn_over(self) -> None:
        older = older_half(self._path)
        if older.exists() and not self._is_dropping_said:
            self._is_dropping_said = True
            logger.info(
                "%s and %s reached max_input_gb: the oldest experiences in them are deleted",
                self._path, older.name,
            )  # fmt: skip
        try:
            self._path.replace(older)
        except OSError as error:
            raise DataError(
                f"{self._path} cannot be renamed to {older.name}: {error.strerror or error}. Let "
                f"its folder be written, or set save_input of experience_pipeline to false."
            ) from error
