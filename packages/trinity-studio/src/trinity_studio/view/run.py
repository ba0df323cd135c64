"""A run directory as the viewer knows it: followed as it grows, readable whatever became of it."""

from __future__ import annotations

import json
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError
from trinity.runtime.record.lock import is_held
from trinity.runtime.record.run_text import RunText
from trinity_debug.log_files import last_error

from trinity_studio.view.ledger import ledger_of
from trinity_studio.view.metrics_file import MetricsFile
from trinity_studio.view.provenance import FILES, read_provenance
from trinity_studio.view.rollouts import Rollouts
from trinity_studio.view.service import service_file
from trinity_studio.view.trained import Trained

if TYPE_CHECKING:
    from pathlib import Path

    from trinity_ledger.address import Address

    from trinity_studio.view.ledger import UnreadLedger
    from trinity_studio.view.provenance import Provenance

__all__ = ["Run", "find_runs"]

_MAX_DEPTH = 6  # of folders below a named one
_MARKS = ("run.json", "config.yaml", "history.jsonl", "monitor", "samples", "buffer", "bench.json")
_PARTS = {*_MARKS, "evaluations", "bench", "plots", "profile"}  # hold no run


class Run:
    """One run, or one stage of it. Any thread may ask.

    Args:
        directory: of it.
        name: by which pages call it.
    """

    def __init__(self, directory: Path, *, name: str) -> None:
        self.directory = directory
        self.name = name
        self.metrics = MetricsFile(directory / "monitor" / "metrics.jsonl")
        self.trained = Trained(directory)
        self.rollouts = Rollouts(directory / "buffer" / "explorer_output.jsonl")
        self.status: dict[str, Any] = {}  # run.json; of a run that only evaluates, bench.json
        self.plain: tuple[Provenance, dict[str, str]] | None = None  # settings, to compare by
        self.row: tuple[list[tuple[int, int]], dict[str, Any]] | None = None  # of the table
        self._problem = ""  # of it
        self._provenance: tuple[list[tuple[int, int]], Provenance] | None = None  # with its stamp
        self._lock = threading.Lock()

    @cached_property
    def text(self) -> RunText | None:
        """Return the reader of its tokens; None: there is no tokenizer."""
        return RunText.of(self.directory)

    def provenance(self) -> Provenance:
        """Return what it was made of, as it is written down now."""
        stamp = [_stamp(self.directory / name) for name in FILES]
        if self._provenance is None or self._provenance[0] != stamp:
            self._provenance = stamp, read_provenance(self.directory)
        return self._provenance[1]

    @property
    def title(self) -> str:
        """Return its project and name, and its stage where it is one."""
        values = self.provenance().values
        project, name = str(values.get("project") or ""), str(values.get("name") or "")
        if not project or not name:
            return self.name
        parts = self.directory.absolute().parts[-2:]  # of a stage, the run's comes first
        own = [place for place, part in enumerate(parts) if _is_named(part, name)]
        return "/".join([project, *(parts[own[0] :] if own else [name])])

    @property
    def is_live(self) -> bool:
        """Return whether a process has the directory now."""
        return is_held(self.directory) or is_held(self.directory.parent)

    @property
    def has_ledger(self) -> bool:
        """Return whether it keeps its experiences in a ledger that may be read."""
        return self.ledger is not None

    @property
    def ledger(self) -> Address | UnreadLedger | None:
        """Return where its ledger is; None: it has none."""
        return ledger_of(self.directory, self.provenance().values)

    @property
    def service(self) -> Path | None:
        """Return the file of the runs that it serves; None: it serves none."""
        return service_file(self.directory, self.provenance().values)

    @property
    def state(self) -> str:
        """Return how it is, in a word or a few."""
        status = self.status.get("status")
        if not isinstance(status, str):
            return "running" if self.is_live else self._state_without_status()
        if status == "running" and not self.is_live:
            return "died: it says that it runs, and no process has its directory"
        return status

    def _state_without_status(self) -> str:
        left = ("run.json", "bench.json", "history.jsonl", "monitor/metrics.jsonl")
        if any((self.directory / name).exists() for name in left):
            return "unknown"
        error = last_error(self.rooms)
        return f"did not start: {error}" if error else "did not start"

    @property
    def held_out(self) -> list[str]:
        """Return the metrics with the mean rewards of its evaluations; those of training first."""
        names = [*self.metrics.names("eval/"), *self.metrics.names("bench/")]
        return [name for name in names if "/reward/mean@" in name]

    def follow(self) -> None:
        """Read what is new."""
        with self._lock:
            self.status, self._problem = _status(self.directory)
            self.metrics.follow()
            self.trained.follow(is_live=lambda: self.is_live)

    def problems(self) -> list[str]:
        """Return what is damaged or missing, a line each."""
        lines = [self._problem] if self._problem else []
        if self.metrics.num_damaged:
            lines.append(f"{self.metrics.num_damaged} lines of metrics.jsonl are damaged")
        if self.rollouts.num_damaged:
            count = self.rollouts.num_damaged
            lines.append(f"{count} lines of explorer_output.jsonl are damaged or older")
        return [*lines, *self.trained.problems]

    @property
    def rooms(self) -> Path:
        """Return the directory whose logs tell of it: with stages, the one above."""
        own = self.directory
        return own if (own / "trinity.log").exists() else own.parent


def find_runs(named: list[Path]) -> list[Run]:
    """Return the runs in the directories: themselves, their stages, a sweep's, those below them.

    Raises:
        ConfigError: there is none in one of them.
    """
    folders: list[Path] = []
    for path in named:
        found = [run for one in _of_sweep(path) or [path] for run in _below(one)]
        if not found:
            if not path.exists():
                raise ConfigError(
                    f"there is no folder {path}, seen from here. Name a run directory."
                )
            if error := last_error(path):
                raise ConfigError(f"the run {path} did not start: {error}")
            raise ConfigError(
                f"{path} holds no run: no run.json, config.yaml or metrics. Name the folder that "
                f"the header of the run calls its run directory, or one that holds such folders."
            )
        folders += [folder for folder in found if folder not in folders]
    # By what was named, not by what was found: a run keeps its name when others come beside it.
    places = [path.absolute().parts for path in named]
    shared = len(places[0]) if len(places) == 1 else len(_shared(places))
    return [
        Run(folder, name="/".join(folder.absolute().parts[shared:]) or folder.absolute().name)
        for folder in folders
    ]


def _of_sweep(path: Path) -> list[Path]:
    """Return the run directories of a sweep, which stand beside its folder; [] if it is none."""
    try:
        content = json.loads((path / "sweep.json").read_text(encoding="utf-8"))
        names = [str(one["directory"]) for one in content["runs"]]
    except (OSError, ValueError, TypeError, KeyError):
        return []
    beside = path.absolute().parent
    return [beside / name for name in names if "/" not in name and name not in {"", ".", ".."}]


def _below(path: Path, *, depth: int = 0) -> list[Path]:
    """Return a folder if it is a run, and all runs below it: its stages, or a group of runs."""
    try:
        inside = sorted(path.iterdir()) if path.is_dir() and depth <= _MAX_DEPTH else []
        folders = [one for one in inside if _may_hold_runs(one.name) and one.is_dir()]
    except OSError:  # it may not be read, or is gone since
        return []
    below = [run for one in folders for run in _below(one, depth=depth + 1)]
    is_run = _may_hold_runs(path.name) and any(one.name in _MARKS for one in inside)
    return [path, *below] if is_run else below


def _may_hold_runs(name: str) -> bool:
    """Return whether a folder of this name may be one; files of a run are not even asked."""
    is_part = name.startswith((".", "global_step_")) or name in _PARTS
    return not is_part and not name.endswith((".json", ".jsonl", ".log", ".txt", ".yaml"))


def _is_named(folder: str, name: str) -> bool:
    """Return whether a run of a name has the folder: a second run's has a time behind it."""
    return folder == name or folder.startswith(f"{name}_")


def _shared(paths: list[tuple[str, ...]]) -> list[str]:
    """Return the first parts that all paths share, never all of one."""
    shared = []
    for parts in zip(*(path[:-1] for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return shared


def _stamp(path: Path) -> tuple[int, int]:
    """Return what changes with a file; zeros: there is none."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


def _status(directory: Path) -> tuple[dict[str, Any], str]:
    """Return ``run.json``, of who only evaluates ``bench.json``, and what is wrong with it."""
    both = [directory / "run.json", directory / "bench.json"]
    path = next((one for one in both if one.exists()), both[0])
    try:
        status = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, "run.json is missing: the run did not begin, or it was removed"
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{path.name} cannot be read: {' '.join(str(error).split())[:200]}"
    is_record = isinstance(status, dict)
    return (status, "") if is_record else ({}, f"{path.name} is not what a run writes")
