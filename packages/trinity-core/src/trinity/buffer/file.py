"""Experiences in a file: mode ``explore`` writes one, mode ``train`` reads one."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.buffer.formatter import (
    experience_of_row,
    has_pair,
    is_stored_experience,
    pair_of_row,
    text_of_row,
)
from trinity.buffer.rows import Rows, load_rows
from trinity.common.experience import Experience
from trinity.common.ports import Storage
from trinity.errors import BufferClosedError, DataError
from trinity.extend import KINDS, get_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity.common.config import ExperienceBufferConfig
    from trinity.common.models.chat_format import ChatFormat
    from trinity.common.ports import TaskSelector


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
        self._chat_format = chat_format
        self._total_epochs = total_epochs
        self._reader: _Reader | None = None
        self._place: dict[str, Any] = {"position": 0}  # where it stood when it was opened
        self._place_before = self._place  # the last read
        self._size: int | None = None  # bytes of whole steps; None: nothing was written yet
        self._is_closed = False
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
            if self._is_closed:
                raise BufferClosedError(f"{self._path} is closed; it accepts no more experiences")
            if experiences:
                self._append_step(experiences)

    def _append_step(self, experiences: Sequence[Experience]) -> None:
        lines = "".join(json.dumps(e.to_dict()) + "\n" for e in experiences).encode()
        path = Path(self._path)
        try:
            size = self._whole_steps(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
                self._size = _append(file, lines, after=size)
        except OSError as e:
            raise DataError(
                f"{len(experiences)} experiences cannot be written to {path}: {e.strerror or e}. "
                f"Its earlier content is intact. Free space, or change {self._setting}."
            ) from e
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
    def _taken(reader: _Reader, count: int, min_model_version: int) -> list[Experience]:
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
        self._is_closed = True

    def state_dict(self) -> dict[str, Any]:
        return {"size": self._size, **self._read_place()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        place = {name: value for name, value in state.items() if name != "size"}
        self._size, self._place, self._reader = state["size"], place, None

    def _whole_steps(self, path: Path) -> int:
        if self._size is None or not path.exists() or path.stat().st_size < self._size:
            self._size = _size_of_whole_lines(path) if path.exists() else 0
        return self._size

    def _opened(self) -> _Reader:
        if self._reader is None:
            rows = load_rows(
                self._path,
                split=self._config.split,
                subset_name=self._config.subset_name,
                setting=self._setting,
            )
            self._reader = _Reader(
                rows,
                config=self._config,
                chat_format=self._chat_format,
                total_epochs=self._total_epochs,
            )
            self._reader.stand_at(self._place)
        return self._reader

    def _read_place(self) -> dict[str, Any]:
        return self._reader.place if self._reader else self._place


class _Reader:
    """Gives the experience of each row, in the selector's order."""

    def __init__(
        self,
        rows: Rows,
        *,
        config: ExperienceBufferConfig,
        chat_format: ChatFormat | None,
        total_epochs: int | None,
    ) -> None:
        self.rows = rows
        self._selector = _selector(len(rows), config=config)
        self._num_given = 0
        self._keys = config.format
        self._schema = config.schema_type
        self._chat_format = _with_template(chat_format, config.format.chat_template)
        self._end = None if total_epochs is None else len(rows) * total_epochs

    @property
    def num_left(self) -> int:
        """Return how many experiences are left; without an end, those of the epoch."""
        end = self._end
        if end is None:
            return len(self.rows) - self._num_given % len(self.rows)
        return end - self._num_given

    @property
    def place(self) -> dict[str, Any]:
        """Return where it stands."""
        return {"position": self._num_given, "selector": self._selector.state_dict()}

    def stand_at(self, place: dict[str, Any]) -> None:
        """Go on from a place; one without the selector's own is a number of rows."""
        self._num_given = place["position"]
        if self._num_given or "selector" in place:
            self._selector.load_state_dict(place.get("selector", {"position": self._num_given}))

    @property
    def is_done(self) -> bool:
        """Return whether all epochs are over."""
        return self.num_left <= 0

    def next_experience(self) -> Experience:
        """Return the experience of the next row."""
        (number,) = self._selector.get_indices(1)
        self._num_given += 1
        row, origin = self.rows[number], str(self.rows.origin(number))
        if is_stored_experience(row):
            return _stored(row, origin=origin)
        if self._chat_format is None:
            raise DataError(
                f"{origin}, is not a stored experience, and without a model there is no chat "
                f"template to tokenize it. Set model.model_path."
            )
        make = self._maker(row)
        made = make(row, chat_format=self._chat_format, keys=self._keys, origin=origin)
        made.info["row"] = origin
        return made

    def _maker(self, row: dict[str, Any]) -> Callable[..., Experience]:
        """Return what makes an experience of the row: by the schema, or else by its keys."""
        makers = {"cpt": text_of_row, "dpo": pair_of_row, "sft": experience_of_row}
        is_pair = self._keys.prompt_type == "chatpair" or has_pair(row, keys=self._keys)
        return makers.get(self._schema or "", pair_of_row if is_pair else experience_of_row)


def _stored(row: dict[str, Any], *, origin: str) -> Experience:
    try:
        return Experience.from_dict(row)
    except (TypeError, ValueError) as e:
        raise DataError(f"{origin}, is an incomplete experience: {e}. Remove the row.") from e


def _selector(num_rows: int, *, config: ExperienceBufferConfig) -> TaskSelector:
    chosen = config.data_selector
    cls = get_manager().load("task_selector", chosen.selector_type or "sequential")
    seed = {} if chosen.seed is None else {"seed": chosen.seed}
    selector: TaskSelector = KINDS["task_selector"].made(
        cls, chosen.kwargs, num_rows=num_rows, **seed
    )
    return selector


def _with_template(chat_format: ChatFormat | None, template: str | None) -> ChatFormat | None:
    if chat_format is None or template is None:
        return chat_format
    return type(chat_format)(chat_format.tokenizer, chat_template=template)


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
