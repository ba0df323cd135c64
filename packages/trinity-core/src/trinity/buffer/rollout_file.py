"""The file of what workflows returned, for people to read: it keeps the newest of them.

A file that has half of what it may have becomes the older half, in place of the one before, and
another begins. A run that goes back to before that puts it back (``runtime/record/rewind.py``).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity.buffer.file import FileStorage
    from trinity.common.experience import Experience

logger = logging.getLogger(__name__)


def older_half(path: Path) -> Path:
    """Return where the older lines of such a file lie."""
    return path.with_name(f"{path.stem}.older{path.suffix}")


class RolloutFile:
    """Writes to a storage, and sees that its file and the older half stay within a limit.

    Args:
        storage: writes the file.
        path: of the file.
        max_bytes: of both files, but for the last write.
    """

    def __init__(self, storage: FileStorage, *, path: Path, max_bytes: float) -> None:
        self._storage, self._path, self._max_bytes = storage, path, max_bytes
        self._is_dropping_said = False

    def write(self, experiences: Sequence[Experience]) -> None:
        """Append experiences.

        Raises:
            DataError: the files cannot be written.
        """
        if self._path.is_file() and 2 * self._path.stat().st_size >= self._max_bytes:
            self._turn_over()
        self._storage.write(experiences)

    def close(self) -> None:
        """Accept no more."""
        self._storage.close()

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
