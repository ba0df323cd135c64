"""Cut the files of a run back to where its checkpoint stands.

What a run appends to (metrics, event files, the history of trained experiences, stored experiences)
has no meaning beyond the weights that it belongs to: a run that goes on does those steps again. A
checkpoint therefore holds how long each of them was, and ``beginning.json`` how long they were
before the first step; when a run goes on, the rest is cut off before anything is opened. What is
kept must be what was written: its digest is held too, and grows with the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.buffer.step_file import older_half
from trinity.errors import CheckpointError
from trinity.monitor.jsonl import MetricsLine, first_bad_line
from trinity.runtime.record.growing_file import Growth, Growths
from trinity.runtime.record.records import (
    Beginning,
    DamagedError,
    HistoryLine,
    read_record,
    write_record,
)
from trinity.runtime.record.samples import HISTORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trinity.common.config import Config
    from trinity.runtime.record.growing_file import Mark
    from trinity.runtime.record.rundir import RunDir

BEGINNING = "beginning.json"
_METRICS, _EVENTS = "monitor/metrics.jsonl", "monitor/tensorboard"
_LINES = {_METRICS: MetricsLine, HISTORY: HistoryLine}


class GrowingFiles:
    """The files that a stage appends to.

    A file of the run directory is called by its path in it, so that a moved run goes on; any other
    by the path that the configuration gives.

    Attributes:
        of_explorer: those that the explorer writes.
    """

    def __init__(self, config: Config, *, rundir: RunDir) -> None:
        self.rundir = rundir
        self._root = rundir.path.absolute()
        self._mode = config.mode
        explorer_files = _explorer_files(config, rundir)
        self._of_explorer = {self._name(path): path.absolute() for path in explorer_files}
        dump = _dump(config, rundir) if config.has_trainer else None
        self._dump = None if dump is None else self._name(dump)  # None: there is no such file
        turned = _dump(config, rundir) if config.mode not in {"train", "bench"} else None
        self._turned = None if turned is None else self._name(turned)
        self._growths: dict[str, Growth] = {}
        self.of_explorer = Growths({name: self._growth(name) for name in self._of_explorer})

    def marks(self) -> dict[str, Mark]:
        """Return how long each file is now, and its digest; what is not there has no bytes.

        What they hold is on the disk then.
        """
        return {name: self._growth(name).mark(is_synced=True) for name in self._names()}

    def check(self, marks: Mapping[str, Mark | int], *, say: Callable[[str], None]) -> None:
        """Compare what will be kept with what was written.

        Metrics and history that are gone are told: the run can do without them.

        Raises:
            DamagedError: a file is shorter, or is not what was written.
        """
        self._turn_back(marks)
        for name in self._names():
            path, is_record = self._path(name), self._is_record(name)
            size, digest = self._mark(name, marks)
            if size is None and not is_record and self._size(name):
                raise CheckpointError(
                    f"{path} is not the file that the run wrote so far. Set its path back, or name "
                    f"one that is not there yet."
                )
            if not size:
                continue
            if is_record and not os.path.lexists(path):
                say(f"{path} is gone: it goes on without the lines that it had")
                continue
            problem = self._growth(name).problem(size, digest)
            if not problem and not digest and name in _LINES:
                problem = first_bad_line(path, _LINES[name], size=size)
            if problem:
                raise DamagedError(self._refusal(path, problem, is_record=is_record))

    def _turn_back(self, marks: Mapping[str, Mark | int]) -> None:
        """Put the older half of the rollouts back in its place, if it became it since the marks."""
        if self._turned is None or not (older := older_half(self._path(self._turned))).is_file():
            return
        path, (size, digest) = self._path(self._turned), self._mark(self._turned, marks)
        if not size:
            older.unlink()  # all of it was written later
        elif self._growth(self._turned).problem(size, digest):
            if Growth(older).problem(size, digest):
                path.unlink(missing_ok=True)  # its lines were deleted since: it is told as gone
            else:
                older.replace(path)

    def _is_record(self, name: str) -> bool:
        """Return whether a run can do without the lines of a file: nothing is trained on them."""
        return name not in self._of_explorer or name == self._dump

    def cut(self, marks: Mapping[str, Mark | int]) -> None:
        """Cut every file back; event files that were not there then are removed."""
        self._turn_back(marks)
        for name in self._names():
            path, size = self._path(name), self._mark(name, marks)[0] or 0
            if name.startswith(_EVENTS) and not size:
                path.unlink(missing_ok=True)
            elif path.exists() and path.stat().st_size > size:
                kept = _lines_of_bench(path, after=size) if name == _METRICS else b""
                _replace_end(path, kept, after=size)
            self._growth(name).cut(size)  # last: a thread of before may look until then

    def cut_to_beginning(self) -> None:
        """Cut every file back to before this mode's first step, which is noted the first time.

        Raises:
            DamagedError: where that was is not known any more.
        """
        path = self._root / BEGINNING
        noted = {}
        if os.path.lexists(path):
            remedy = "Remove the run directory, or set another name, to begin anew."
            noted = read_record(path, Beginning, remedy=remedy)
        elif self._size(HISTORY):
            raise DamagedError(
                f"{path} is missing, and {self._root / HISTORY} tells of steps whose checkpoints "
                f"are gone. Remove the run directory, or set another name, to begin anew."
            )
        if self._mode in noted:
            self.cut(noted[self._mode])
            return
        noted[self._mode] = self.marks()
        write_record(path, noted)

    def _refusal(self, path: Path, problem: str, *, is_record: bool) -> str:
        if is_record:
            remedy = "or remove it: the run goes on from its checkpoint without those lines"
        else:
            remedy = (
                "or remove the newest checkpoint (of mode explore: explorer_state.json) to go on "
                "from before it"
            )
        return f"{path} is damaged: {problem}. Put it back from a copy, {remedy}."

    def _mark(self, name: str, marks: Mapping[str, Mark | int]) -> tuple[int | None, str]:
        """Return how long a file was, and its digest; None: it was none of the run's then."""
        mark = marks.get(name, marks.get(str(self._path(name))))  # older runs: the absolute path
        if mark is None or isinstance(mark, int):
            return mark, ""
        return mark["size"], mark["digest"]

    def _growth(self, name: str) -> Growth:
        return self._growths.setdefault(name, Growth(self._path(name)))

    def _path(self, name: str) -> Path:
        return self._of_explorer.get(name, self._root / name)

    def _names(self) -> Iterator[str]:
        yield from (_METRICS, HISTORY, *self._of_explorer)
        for path in sorted((self._root / _EVENTS).rglob("*")):
            if path.is_file():
                yield self._name(path)

    def _name(self, path: Path) -> str:
        own = path.absolute()
        return str(own.relative_to(self._root) if own.is_relative_to(self._root) else path)

    def _size(self, name: str) -> int:
        path = self._path(name)
        return path.stat().st_size if path.is_file() else 0


def _explorer_files(config: Config, rundir: RunDir) -> Iterator[Path]:
    if config.mode in {"train", "bench"}:
        return
    dump = _dump(config, rundir)
    if dump is not None:
        yield dump
    stored = config.buffer.trainer_input.experience_buffer
    if stored.storage_type == "file" and stored.path:
        yield Path(stored.path)


def _dump(config: Config, rundir: RunDir) -> Path | None:
    """Return where every rollout is kept for people to read; None: nowhere."""
    raw = config.data_processor.experience_pipeline
    if not raw.save_input:
        return None
    return Path(raw.input_save_path or rundir.buffer / "explorer_output.jsonl")


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
