"""Cut the files of a run back to where its checkpoint stands.

What a run appends to (metrics, event files, the history of trained experiences, stored experiences)
has no meaning beyond the weights that it belongs to: a run that goes on does those steps again. A
checkpoint therefore holds how long each of them was, and ``beginning.json`` how long they were
before the first step; when a run goes on, the rest is cut off before anything is opened.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.runtime.record.history import FILE_NAME as HISTORY
from trinity.runtime.record.rundir import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trinity.common.config import Config
    from trinity.runtime.record.rundir import RunDir

__all__ = ["GrowingFiles"]

BEGINNING = "beginning.json"
_METRICS, _EVENTS = "monitor/metrics.jsonl", "monitor/tensorboard"


class GrowingFiles:
    """The files that a stage appends to.

    A file of the run directory is called by its path in it, so that a moved run goes on; any other
    by its absolute path.
    """

    def __init__(self, config: Config, *, rundir: RunDir) -> None:
        self._root = rundir.path.absolute()
        self._mode = config.mode
        self._of_explorer = [self._name(path) for path in _explorer_files(config, rundir)]

    def sizes(self) -> dict[str, int]:
        """Return how long each file is now; what is not there has no bytes."""
        return {name: self._size(name) for name in self._names()}

    def explorer_sizes(self) -> dict[str, int]:
        """Return the same of what the explorer writes."""
        return {name: self._size(name) for name in self._of_explorer}

    def cut(self, sizes: Mapping[str, int]) -> None:
        """Cut every file back; event files that were not there then are removed."""
        for name in self._names():
            path, size = self._root / name, sizes.get(name, 0)
            if name.startswith(_EVENTS) and not size:
                path.unlink(missing_ok=True)
            elif path.exists() and path.stat().st_size > size:
                kept = _lines_of_bench(path, after=size) if name == _METRICS else b""
                _replace_end(path, kept, after=size)

    def cut_to_beginning(self) -> None:
        """Cut every file back to before this mode's first step, which is noted the first time."""
        path = self._root / BEGINNING
        noted = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if self._mode in noted:
            self.cut(noted[self._mode])
            return
        noted[self._mode] = self.sizes()
        write_atomically(path, json.dumps(noted, indent=2) + "\n")

    def _names(self) -> Iterator[str]:
        yield from (_METRICS, HISTORY, *self._of_explorer)
        for path in sorted((self._root / _EVENTS).rglob("*")):
            if path.is_file():
                yield self._name(path)

    def _name(self, path: Path) -> str:
        own = path.absolute()
        return str(own.relative_to(self._root) if own.is_relative_to(self._root) else own)

    def _size(self, name: str) -> int:
        path = self._root / name  # an absolute name replaces the root
        return path.stat().st_size if path.is_file() else 0


def _explorer_files(config: Config, rundir: RunDir) -> Iterator[Path]:
    if config.mode not in {"both", "explore"}:
        return
    raw = config.data_processor.experience_pipeline
    if raw.save_input:
        yield Path(raw.input_save_path or rundir.buffer / "explorer_output.jsonl")
    stored = config.buffer.trainer_input.experience_buffer
    if stored.storage_type == "file" and stored.path:
        yield Path(stored.path)


def _lines_of_bench(path: Path, *, after: int) -> bytes:
    """Return the lines of mode ``bench``, which belong to checkpoints and are not made again."""
    with path.open("rb") as file:
        file.seek(after)
        return b"".join(line for line in file if b'"bench/' in line and line.endswith(b"\n"))


def _replace_end(path: Path, lines: bytes, *, after: int) -> None:
    with path.open("r+b") as file:
        file.truncate(after)
        file.seek(after)
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())
