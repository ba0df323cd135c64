"""Experiences in a file: mode ``explore`` writes one, mode ``train`` reads one."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.buffer.file_reader import FileReader
from trinity.buffer.row_files import load_rows
from trinity.buffer.step_file import StepFile
from trinity.common.ports import Storage
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.config import ExperienceBufferConfig
    from trinity.common.experience import Experience
    from trinity.common.models.chat_format import ChatFormat

logger = logging.getLogger(__name__)


class FileStorage(Storage):
    """Writes experiences as JSON lines, one whole step at a time; reads them, or supervised rows.

    Args:
        config: the section of the buffer: path, split, format, order.
        path: the file or folder; None: what the section says.
        chat_format: turns supervised rows into tokens; not needed for stored experiences.
        total_epochs: how often all rows are given; None: without an end.
        setting: what the path is called in the configuration, for messages.
    """

    def __init__(
        self,
        config: ExperienceBufferConfig,
        *,
        path: Path | str | None = None,
        chat_format: ChatFormat | None = None,
        total_epochs: int | None = 1,
        setting: str = "buffer.trainer_input.experience_buffer.path",
    ) -> None:
        self._config = config
        self._setting = setting
        self._path = str(path or config.path or "")
        self._file = StepFile(self._path, setting=setting)
        self._chat_format = chat_format
        self._total_epochs = total_epochs
        self._reader: FileReader | None = None
        self._place: dict[str, Any] = {"position": 0}  # where it stood when it was opened
        self._place_before = self._place  # the last read
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """Return how many experiences all epochs give."""
        return len(self._opened().rows) * (self._total_epochs or 1)

    def write(self, experiences: Sequence[Experience]) -> None:
        """Append a step: all of it or nothing.

        Raises:
            BufferClosedError: the file was closed.
            DataError: the file cannot be written; what it held before is unharmed.
        """
        with self._lock:
            self._file.write(experiences)
            if experiences:
                self._place, self._reader = self._read_place(), None  # there is more to read now

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return the next experiences, fewer only at the end of the last epoch.

        Raises:
            DataError: a row cannot be used; the next read begins where this one did.
            StopIteration: all epochs are over.
        """
        with self._lock:
            reader = self._opened()
            self._place_before = reader.place
            try:
                return self._taken(reader, count, min_model_version)
            except DataError:
                reader.stand_at(self._place_before)
                raise

    @staticmethod
    def _taken(reader: FileReader, count: int, min_model_version: int) -> list[Experience]:
        taken: list[Experience] = []
        while len(taken) < count and not reader.is_done:
            experience = reader.next_experience()
            if experience.info.get("model_version", min_model_version) >= min_model_version:
                taken.append(experience)
        if not taken:
            raise StopIteration
        return taken

    def put_back(self, experiences: Sequence[Experience]) -> None:
        self._opened().stand_at(self._place_before)

    def available(self) -> int:
        return self._opened().num_left if Path(self._path).exists() or self._reader else 0

    def close(self) -> None:
        self._file.close()

    def state_dict(self) -> dict[str, Any]:
        return {"size": self._file.size, **self._read_place()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        place = {name: value for name, value in state.items() if name != "size"}
        self._file.size, self._place, self._reader = state["size"], place, None

    def _opened(self) -> FileReader:
        if self._reader is None:
            rows = load_rows(
                self._path,
                split=self._config.split,
                subset_name=self._config.subset_name,
                setting=self._setting,
            )
            self._reader = FileReader(
                rows,
                config=self._config,
                chat_format=self._chat_format,
                total_epochs=self._total_epochs,
            )
            self._reader.stand_at(self._place)
        return self._reader

    def _read_place(self) -> dict[str, Any]:
        return self._reader.place if self._reader else self._place
