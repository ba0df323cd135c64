"""What a sweep keeps beside its runs, so that it goes on after a kill.

<root>/<project>/[<group>/]<name>.sweep/
    sweep.json      the runs: names, folders, settings; digests of the settings they share
    results.jsonl   one line a run that ended and is still there: exit code, seconds
    logs/<run>.log  what each run printed
    .lock           held while the sweep goes on
<root>/<project>/[<group>/]<name>-<label>/    each run, an ordinary run directory
"""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from trinity.common.config.kept import flat, shown_setting
from trinity.errors import ConfigError
from trinity.monitor.jsonl import append_whole
from trinity.runtime.record.records import write_atomically
from trinity.runtime.record.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from trinity.common.config import Config

    from trinity_lab.points import Point

SWEEP = "sweep.json"
_RESULTS = "results.jsonl"
_OF_ONE_RUN = {"name", "seed", "sweep"}  # settings that no two runs share, or that say who starts


@dataclass(frozen=True, kw_only=True)
class SweepRun:
    """One run of a sweep."""

    name: str
    directory: Path
    settings: dict[str, Any]  # by dotted key (Any: yaml)

    @property
    def overrides(self) -> list[str]:
        """Return the ``KEY=VALUE`` settings with which the sweep's file is this run's."""
        settings = {"name": self.name, **self.settings}
        own = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        return ["sweep={}", "continue_from_checkpoint=true", *own]


@dataclass(frozen=True, kw_only=True)
class SweepFolder:
    """The files of one sweep.

    Attributes:
        path: the folder.
        runs: of the sweep as it is asked for now, in order.
        shared: digest of each setting that all runs share, by its dotted path.
    """

    path: Path
    runs: Sequence[SweepRun]
    shared: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config, points: Sequence[Point]) -> SweepFolder:
        """Return where a sweep of these points belongs.

        Args:
            config: the file's, with the options of the command line.
            points: the runs.
        """
        own = RunDir.of(config).path.absolute()
        runs = [
            SweepRun(
                name=f"{config.name}-{point.label}",
                directory=own.with_name(f"{own.name}-{point.label}"),
                settings=point.settings,
            )
            for point in points
        ]
        varied = {key for point in points for key in point.settings} | _OF_ONE_RUN
        folder = own.with_name(f"{own.name}.sweep")
        return cls(path=folder, runs=runs, shared=_digests(config, without=varied))

    @property
    def directories(self) -> list[Path]:
        """Return the run directories."""
        return [run.directory for run in self.runs]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder inside, once it is found to be of this sweep or new.

        Raises:
            ConfigError: another process holds it, its runs had other settings, or a folder that
                this sweep would use belongs to another run.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock", timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise ConfigError(
                f"another process runs the sweep {self.path}. Wait for it, or set another name."
            ) from error
        try:
            self._claim()
            yield
        finally:
            lock.release()

    def log(self, run: SweepRun) -> Path:
        """Return the file of what a run prints."""
        return self.path / "logs" / f"{run.name}.log"

    def finished(self) -> dict[str, float]:
        """Return the seconds of each run that is finished, by its name."""
        lines = _lines(self.path / _RESULTS)
        return {line["name"]: line["seconds"] for line in lines if line["exit_code"] == 0}

    def note(self, run: SweepRun, *, exit_code: int, seconds: float) -> None:
        """Note how a run ended."""
        line = json.dumps({"name": run.name, "exit_code": exit_code, "seconds": seconds})
        append_whole(self.path / _RESULTS, f"{line}\n".encode())

    def _claim(self) -> None:
        """Write the runs down; those of an earlier start of this sweep stay."""
        before = read_sweep(self.path)
        if before is not None and not self._has_begun(before.directories):
            before = None  # nothing to compare with: it is as good as new
        if before is not None:
            self._check_same(before.shared)
        known = {run.name: run for run in before.runs} if before is not None else {}
        used = [
            run.directory
            for run in self.runs
            if run.name not in known and RunDir(run.directory).is_used()
        ]
        if used:
            raise ConfigError(
                f"{len(used)} of {len(self.runs)} run directories are in use by runs that are not "
                f"of this sweep, such as {used[0]}. Set another name, or remove them."
            )
        runs = known | {run.name: run for run in self.runs}
        self._forget({name for name, run in runs.items() if not RunDir(run.directory).is_used()})
        content = {
            "schema": 1,
            "shared": self.shared,
            "runs": [
                {"name": run.name, "directory": run.directory.name, "settings": run.settings}
                for run in runs.values()
            ],
        }
        write_atomically(self.path / SWEEP, json.dumps(content, indent=2) + "\n")
        (self.path / "logs").mkdir(exist_ok=True)

    def _forget(self, names: set[str]) -> None:
        """Forget how runs ended whose directories are gone: they are made again."""
        lines = _lines(self.path / _RESULTS)
        kept = [json.dumps(line) + "\n" for line in lines if line["name"] not in names]
        if len(kept) < len(lines):
            write_atomically(self.path / _RESULTS, "".join(kept))

    def _has_begun(self, directories: Sequence[Path]) -> bool:
        """Return whether a run of an earlier start left anything; a refused one does not."""
        return any(RunDir(one).is_used() for one in directories)

    def _check_same(self, before: dict[str, str]) -> None:
        both = before.keys() & self.shared.keys()
        changed = sorted(path for path in both if before[path] != self.shared[path])
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise ConfigError(
                f"the sweep {self.path} was begun with other values of {', '.join(changed[:3])}"
                f"{more}: its runs could not be compared with new ones. Set them back to go on, or "
                f"set another name."
            )


def read_sweep(path: Path) -> SweepFolder | None:
    """Return the sweep of a folder; None: there is none.

    Raises:
        ConfigError: its file is damaged.
    """
    file = path / SWEEP
    if not file.exists():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        runs = [
            SweepRun(
                name=one["name"],
                directory=path.parent / one["directory"],
                settings=dict(one["settings"]),
            )
            for one in content["runs"]
        ]
        return SweepFolder(path=path, runs=runs, shared=dict(content["shared"]))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{file} is damaged: {error}. Remove it and its runs, or set another name."
        ) from error


def _digests(config: Config, *, without: set[str]) -> dict[str, str]:
    plain = config.model_dump(mode="json", fallback=repr)
    shown = shown_setting(config, "", plain)  # secrets are masked
    return {
        path: hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:12]
        for path, value in flat(shown)
        if not any(path == key or path.startswith(f"{key}.") for key in without)
    }


def _lines(path: Path) -> list[dict[str, Any]]:  # Any: json
    """Return the lines of the file; one that a kill cut short is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
