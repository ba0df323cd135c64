"""How a run stands: who works at it, what it waits for, how far it is; by its files alone.

A run that is dead tells the same as one that lives, but for who holds it. Its storage may tell
more, as a ledger does.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trinity.cli.output import duration
from trinity.common.config.kept import kept_settings
from trinity.errors import CheckpointError, ConfigError, TrinityError
from trinity.extend import get_manager
from trinity.extend.kinds import KINDS
from trinity.extend.known import distribution_of_component
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.record.checkpoint import CheckpointStore
from trinity.runtime.record.lock import owners
from trinity.runtime.record.progress import Progress, read_progress
from trinity.runtime.record.records import StatusRecord, finding_line, read_record

from trinity_debug.disk import DiskReport, read_disk
from trinity_debug.evaluation_lines import evaluation_lines
from trinity_debug.log_files import last_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from trinity.common.ports import StorageReport
    from trinity.runtime.record.checkpoint import Checkpoint

_BUFFER = ("buffer", "trainer_input", "experience_buffer")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerReport:
    """One side of a run, or all of it."""

    name: str  # "run", "trainer", or the explorer's
    mode: str
    status: str  # as run.json says; "lost": it says running, and nobody holds it
    explore_steps: int
    train_steps: int
    pid: int | None  # None: no living process of this machine holds it
    last_s: float | None  # seconds since its last metrics
    metrics: dict[str, float]  # ages and loads of its last steps
    error: str
    audit: list[str]  # what the audit found
    findings: list[str] = field(default_factory=list)  # what advisors found
    evaluations: list[str] = field(default_factory=list)  # the newest, and what the first gave
    total_steps: int = 0  # 0: it has no end
    restarts: int = 0  # by trinity run --restart, since that command began


@dataclass(frozen=True, kw_only=True, slots=True)
class RunReport:
    """All that is known of a run."""

    directory: str
    parts: list[WorkerReport]
    checkpoint: str  # the newest; "": there is none
    checkpoint_s: float | None  # seconds since it was written
    ledger: StorageReport | None  # None: the run has a queue, or its ledger was not read
    ledger_problem: str = ""
    disk: DiskReport = field(default_factory=DiskReport)
    selection: list[str] = field(default_factory=list)  # best checkpoints, early stopping
    notes: list[str] = field(default_factory=list)


def read_standing(directory: Path, *, may_ask_servers: bool = False) -> RunReport:
    """Return how a run stands.

    Args:
        directory: of the run.
        may_ask_servers: whether to connect to the server that the run directory names for its
            ledger: a server is told who asks, and anybody can have written the directory.

    Raises:
        ConfigError: there is no run in that folder.
    """
    held, folders = owners(directory), dict(_folders(directory))
    if not folders and not held:
        raise ConfigError(_no_run(directory))
    notes: list[str] = []
    of_stages = held or owners(directory.absolute().parent)  # the run of a stage has the lock
    parts = [
        _part(name, folder, held=of_stages, notes=notes) for name, folder in sorted(folders.items())
    ]
    newest = CheckpointStore(directory).latest()
    storage, problem = _storage(directory, folders, may_ask_servers=may_ask_servers)
    return RunReport(
        directory=str(directory),
        parts=[part for part in parts if part is not None],
        checkpoint=newest.path.name if newest else "",
        checkpoint_s=_age(newest.path / "state.json") if newest else None,
        ledger=storage,
        ledger_problem=problem,
        disk=_disk(directory, parts),
        selection=list(_selection(newest)),
        notes=notes,
    )


def selection_of(directory: Path) -> list[str]:
    """Return what the newest checkpoint of a run says of the best ones, and of early stopping."""
    return list(_selection(CheckpointStore(directory).latest()))


def _selection(newest: Checkpoint | None) -> Iterator[str]:
    try:
        progress = read_progress(newest.read_state()) if newest is not None else Progress()
    except CheckpointError:  # who resumes is told
        return
    if progress.best:
        best = ", ".join(f"global_step_{step} {value:.4g}" for value, step in progress.best)
        yield f"best checkpoints by {progress.best_metric}: {best}"
    if progress.watched_metric:
        top = "" if progress.top_value is None else f" {progress.top_value:.4g}"
        yield (
            f"early stopping: {progress.evaluations_in_vain} evaluations since "
            f"{progress.watched_metric}{top}, {duration(progress.seconds)}"
        )
    elif progress.seconds:
        yield f"early stopping: {duration(progress.seconds)} of training"


def _no_run(directory: Path) -> str:
    if not directory.exists():
        return f"there is no folder {directory}, seen from here: name a run directory."
    is_stage = (directory / "config.yaml").exists()  # its run's log is above it
    error = last_error(directory) or (last_error(directory.parent) if is_stage else "")
    if error or is_stage:
        return f"the run {directory} did not start{f': {error}' if error else '.'}"
    return (
        f"{directory} holds no run: it has neither run.json nor explorers. The header of a run "
        f"names its run directory; a run with stages has one folder a stage."
    )


def _folders(directory: Path) -> Iterator[tuple[str, Path]]:
    if _status_file(directory).exists():
        yield "", directory
    for path in sorted(directory.glob("explorers/*/run.json")):
        yield path.parent.name, path.parent


def _status_file(folder: Path) -> Path:
    record = folder / "run.json"  # mode bench alone leaves the other
    return record if record.exists() else folder / "bench.json"


def _part(
    name: str, folder: Path, *, held: dict[str, Any], notes: list[str]
) -> WorkerReport | None:
    try:
        status = read_record(_status_file(folder), StatusRecord, remedy="")
        rows = read_metrics(folder / "monitor")
    except CheckpointError as error:
        notes.append(str(error).strip())
        return None
    told = status["status"]
    found = status.get("audit", [])
    owner = held.get(name) or held.get(name or "trainer")
    if status["stage"] and told != "running":
        owner = None  # another stage of the run goes on
    return WorkerReport(
        name=name or ("trainer" if "trainer" in held or status["mode"] == "train" else "run"),
        mode=status["mode"],
        status="lost" if told == "running" and owner is None else told,
        explore_steps=status["explore_steps"] if told != "running" else _last(rows, "explorer"),
        train_steps=status["train_steps"] if told != "running" else _last(rows, "trainer"),
        pid=owner.pid if owner is not None else None,
        last_s=_age(folder / "monitor/metrics.jsonl"),
        metrics=_shown(rows),
        error=status["error"],
        audit=[
            f"audit ({one['check']}): {one['message']}. Look at {one['parts']}." for one in found
        ],
        findings=[finding_line(one) for one in status.get("findings", [])],
        evaluations=list(evaluation_lines(rows, is_bench=status["mode"] == "bench")),
        total_steps=status.get("total_steps") or 0,
        restarts=status.get("restarts") or 0,
    )


def _disk(directory: Path, parts: Iterable[WorkerReport | None]) -> DiskReport:
    known = [part for part in parts if part is not None]
    done = max((max(part.explore_steps, part.train_steps) for part in known), default=0)
    going_on = (part.total_steps for part in known if part.status != "finished")
    total = max(going_on, default=0)  # a run that stopped early makes no more
    return read_disk(directory, done=done, total_steps=total)


def _last(rows: list[dict[str, Any]], role: str) -> int:
    return max((int(row["step"]) for row in rows if row["role"] == role), default=0)


def _shown(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the newest of what says how a run goes."""
    prefixes = (
        "age/",
        "idle/",
        "groups/",
        "engine-",
        "sync/model_version",
        "time/wait",
        "time/train_s",
    )
    names = (*prefixes, "time/rollout_s", "rollout/hung_threads", "rollout/failed_runs")
    newest = {name: value for row in rows[-20:] for name, value in row.items()}
    kept = newest.items()
    return {name: value for name, value in kept if name.startswith(names) and value is not None}


def _age(path: Path) -> float | None:
    try:
        return max(0.0, time.time() - path.stat().st_mtime)
    except OSError:
        return None


def _storage(
    directory: Path, folders: dict[str, Path], *, may_ask_servers: bool
) -> tuple[StorageReport | None, str]:
    """Return what the storage tells, and why it tells nothing."""
    try:
        for name, path in _buffers(folders, os.environ if may_ask_servers else None):
            cls = _reporting(name)
            if cls is not None:
                return cls.report(directory, path=path, may_ask_servers=may_ask_servers), ""
    except TrinityError as error:
        return None, str(error)
    except OSError as error:  # of the path, as a name that is too long
        return None, f"the ledger cannot be looked for: {error}"
    return None, ""


def _buffers(
    folders: dict[str, Path], env: Mapping[str, str] | None
) -> Iterator[tuple[object, str]]:
    """Yield storage and path of each experience buffer that the configurations name.

    Raises:
        ConfigError: afterwards, of a configuration that is not as a run writes it.
    """
    problem: ConfigError | None = None
    for folder in folders.values():
        try:
            buffer = _buffer_of(folder / "config.yaml", env)
            yield buffer.get("storage_type"), _text(buffer.get("path"))
        except ConfigError as error:
            problem = ConfigError(
                f"{folder / 'config.yaml'} does not say where the ledger is: {error}. A run writes "
                f"that file anew when it is started."
            )
    if problem is not None:
        raise problem


def _reporting(name: object) -> Any:
    """Return the storage of that name, if it reports (Any: a class); None: it does not.

    Only a name that a plugin gives is looked up: anybody can have written the configuration, and a
    dotted one would be imported from wherever it says.

    Raises:
        PluginError: it cannot be imported, or a distribution that is not installed has it.
    """
    manager, kind = get_manager(), KINDS["storage"]
    for component in manager.components("storage"):
        if component.name == name:
            return component.load() if "report" in kind.abilities_of(component) else None
    if distribution_of_component("storage", str(name)) is not None:
        manager.find("storage", str(name))  # raises: it names the line that installs it
    return None


def _buffer_of(file: Path, env: Mapping[str, str] | None) -> dict[str, Any]:  # Any: yaml
    """Return the section of the experience buffer; empty: there is none."""
    import yaml

    if not file.is_file():
        return {}
    try:
        section: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(" ".join(str(error).split()).rstrip(".")) from error
    section = kept_settings(section, file.parent, env=env)
    for key in ("", *_BUFFER):
        if key:
            section = section.get(key)
        if section is None:
            return {}
        if not isinstance(section, dict):
            raise ConfigError(f"{key or 'it'} is {section!r:.80}, no mapping")
    return dict(section)


def _text(path: object) -> str:
    if path is not None and not isinstance(path, str):
        raise ConfigError(f"experience_buffer.path is {path!r:.80}, no text")
    return path or ""
