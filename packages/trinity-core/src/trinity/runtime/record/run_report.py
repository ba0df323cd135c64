"""How a run stands: who works at it, what it waits for, how far it is; by its files alone.

A run that is dead tells the same as one that lives, but for who holds it. A ledger tells who is
there, what waits, what runs longest and how old the experiences of a step were.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from trinity.buffer.ledger.membership import LEASE_S, Membership
from trinity.buffer.ledger.opening import open_database
from trinity.common.config.check_ledger import address_of
from trinity.errors import CheckpointError, ConfigError, DataError
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.record.checkpoint import CheckpointStore
from trinity.runtime.record.lock import owners
from trinity.runtime.record.records import StatusRecord, read_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trinity.buffer.ledger.database import Database, ResultRows
    from trinity.buffer.ledger.membership import Member

_AGES = """
SELECT AVG(train_step - 1 - version), MAX(train_step - 1 - version) FROM experience
WHERE train_place IS NOT NULL AND train_step = ?
"""  # as the view ages, which anybody can have replaced
_SLOWEST = """
SELECT task.batch, task.place, task.began FROM task JOIN explorer ON explorer.name = task.owner
WHERE task.state = 'running' AND explorer.beat > ? ORDER BY task.began, task.id LIMIT 5
"""  # of an explorer that is dead nothing runs
_BUFFER = ("buffer", "trainer_input", "experience_buffer")
_UNASKED = (
    "the ledger {name} is left out: only this run directory names its server, and a server is told "
    "who asks. If you know it: trinity status --databases {directory}"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerReport:
    """What a ledger tells."""

    name: str
    sides: list[Member]  # the trainer first; empty where the run is one
    num_waiting: int  # experiences
    num_dropped: int
    trained: int  # the last optimizer step
    ages: tuple[float, float]  # of that step, the mean and the most
    oldest_waiting: int | None  # version of the weights that made what waits, the lowest
    slowest: list[tuple[str, float]]  # running tasks, and since how many seconds
    broken: int  # packets


def read_ledger(database: Database, *, name: str) -> LedgerReport:
    """Return what a ledger tells.

    Raises:
        DataError: it cannot be read, or holds what no run writes: anybody can have made it.
    """
    presence = Membership(database, is_gone=lambda side: False)
    try:
        trainer = presence.trainer()
        sides = [*([trainer] if trainer else []), *presence.explorers()]
        told = database.read(_told)
        for side in sides:
            _check(side)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DataError(
            f"the ledger {name} is left out, for it is not as a run writes one: "
            f"{str(error).rstrip('.')}."
        ) from error
    return LedgerReport(name=name, sides=sides, **told)


def _told(rows: ResultRows) -> dict[str, Any]:
    ((num_waiting, oldest),) = rows.all(
        "SELECT COUNT(*), MIN(version) FROM experience WHERE train_step IS NULL"
    )
    ((trained,),) = rows.all(
        "SELECT COALESCE(MAX(train_step), 0) FROM experience WHERE train_place IS NOT NULL"
    )
    ((mean, most),) = rows.all(_AGES, trained)
    ((num_dropped,),) = rows.all(
        "SELECT COUNT(*) FROM experience WHERE train_step IS NOT NULL AND dropped IS NOT NULL"
    )
    ((broken,),) = rows.all("SELECT COUNT(*) FROM packet WHERE outcome = 'broken'")
    return {
        "num_waiting": num_waiting,
        "oldest_waiting": None if oldest is None else _whole(oldest, of="experience.version"),
        "trained": _whole(trained, of="experience.train_step"),
        "ages": (_number(mean or 0.0, of="the mean age"), _number(most or 0.0, of="the most")),
        "num_dropped": num_dropped,
        "broken": broken,
        "slowest": [
            (f"{batch}/{place}", max(0.0, time.time() - _number(began, of="task.began")))
            for batch, place, began in rows.all(_SLOWEST, time.time() - LEASE_S)
        ],
    }


def _check(side: Member) -> None:
    """Hold that a side is made of what it is declared to be."""
    for name, value in asdict(side).items():
        if name in {"since", "beat"}:
            _number(value, of=name)
        elif name in {"pid", "version", "step"}:
            _whole(value, of=name)
        elif not isinstance(value, str):
            raise TypeError(f"{name} of a side is {value!r:.80}, no text")
        else:
            value.encode()


def _whole(value: object, *, of: str) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{of} is {value!r:.80}, no whole number")
    return value


def _number(value: object, *, of: str) -> float:
    if not isinstance(value, (int, float, Decimal)):
        raise TypeError(f"{of} is {value!r:.80}, no number")
    return float(value)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class RunReport:
    """All that is known of a run."""

    directory: str
    parts: list[WorkerReport]
    checkpoint: str  # the newest; "": there is none
    checkpoint_s: float | None  # seconds since it was written
    ledger: LedgerReport | None  # None: the run has a queue, or its ledger was not read
    ledger_problem: str = ""
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
    ledger, problem = _ledger(directory, folders, may_ask_servers=may_ask_servers)
    return RunReport(
        directory=str(directory),
        parts=[part for part in parts if part is not None],
        checkpoint=newest.path.name if newest else "",
        checkpoint_s=_age(newest.path / "state.json") if newest else None,
        ledger=ledger,
        ledger_problem=problem,
        notes=notes,
    )


def _no_run(directory: Path) -> str:
    if not directory.exists():
        return f"there is no folder {directory}, seen from here: name a run directory."
    stages = ", ".join(str(path.parent) for path in sorted(directory.glob("*/run.json")))
    if stages:
        return f"{directory} has stages. Name one: {stages}."
    return (
        f"{directory} holds no run: it has neither run.json nor explorers. The header of a run "
        f"names its run directory; a run with stages has one folder a stage."
    )


def _folders(directory: Path) -> Iterator[tuple[str, Path]]:
    if (directory / "run.json").exists():
        yield "", directory
    for path in sorted(directory.glob("explorers/*/run.json")):
        yield path.parent.name, path.parent


def _part(
    name: str, folder: Path, *, held: dict[str, Any], notes: list[str]
) -> WorkerReport | None:
    try:
        status = read_record(folder / "run.json", StatusRecord, remedy="")
        rows = read_metrics(folder / "monitor")
    except CheckpointError as error:
        notes.append(str(error).strip())
        return None
    told = status["status"]
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
    )


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


def _ledger(
    directory: Path, folders: dict[str, Path], *, may_ask_servers: bool
) -> tuple[LedgerReport | None, str]:
    """Return what the ledger tells, and why it tells nothing."""
    try:
        path = _ledger_path(directory, folders)
        if not path:
            return None, ""
        address = address_of(path)
        if address.file is not None and not address.file.is_file():
            is_other = address.file.exists()  # a folder, a pipe
            said = "is no file" if is_other else "is not there (seen from this folder)"
            return None, f"the ledger {address.name} {said}"
        if address.file is None and not may_ask_servers:
            return None, _UNASKED.format(name=address.name, directory=directory)
        database = open_database(path, max_retries=0, is_read_only=True)
        try:
            return read_ledger(database, name=address.name), ""
        finally:
            database.close()
    except (DataError, ConfigError) as error:
        return None, str(error)
    except OSError as error:  # of the path, as a name that is too long
        return None, f"the ledger cannot be looked for: {error}"


def _ledger_path(directory: Path, folders: dict[str, Path]) -> str:
    """Return the path of the ledger; empty: there is none.

    Raises:
        ConfigError: no configuration names one, and one of them is not as a run writes it.
    """
    problem: ConfigError | None = None
    for folder in folders.values():
        try:
            buffer = _buffer_of(folder / "config.yaml")
            if buffer.get("storage_type") == "sql":
                return _text(buffer.get("path")) or str(directory / "buffer/ledger.db")
        except ConfigError as error:
            problem = ConfigError(
                f"{folder / 'config.yaml'} does not say where the ledger is: {error}. A run writes "
                f"that file anew when it is started."
            )
    if problem is not None:
        raise problem
    return ""


def _buffer_of(file: Path) -> dict[str, Any]:  # Any: yaml
    """Return the section of the experience buffer; empty: there is none."""
    import yaml

    if not file.is_file():
        return {}
    try:
        section: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(" ".join(str(error).split()).rstrip(".")) from error
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
