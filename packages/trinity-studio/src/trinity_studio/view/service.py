"""The runs of a service, in its file; nothing in it is changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.experience import Experience
from trinity.errors import DataError
from trinity_ledger.address import db_path
from trinity_ledger.sqlite_file import Bounds

from trinity_studio.view.sqlite_file import opened, told

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ServicePage", "read_served", "read_service", "service_file"]

_MOST = 100
_TABLES = ("runs", "exchanges", "rewards")
_STATES = "SELECT state, COUNT(*) FROM runs GROUP BY state ORDER BY state"
_RUNS = """
SELECT number, name, task, state, last_call,
    (SELECT COUNT(*) FROM exchanges WHERE run = number),
    (SELECT COUNT(*) FROM rewards WHERE run = runs.number),
    (SELECT AVG(reward) FROM rewards WHERE run = runs.number),
    (SELECT MAX(step) FROM rewards WHERE run = runs.number)
FROM (SELECT number, name, task, state, last_call FROM runs
    ORDER BY last_call DESC, number DESC LIMIT ? OFFSET ?) AS runs
ORDER BY last_call DESC, number DESC
"""
_NAMES = ("number", "name", "task", "state", "last_call", "exchanges", "rewards", "reward", "step")


@dataclass(kw_only=True)
class ServicePage:
    """What a page shows of a service.

    Attributes:
        name: of the file.
        problem: why it cannot be read; empty: it can.
        states: how many runs are in each.
        runs: those called last, columns by name.
        rows: the exchanges of one run, as JSON.
        rewards: of that run: agent, reward, metrics, step.
    """

    name: str
    problem: str = ""
    states: list[tuple[str, int]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)  # Any: as the columns are
    rows: list[dict[str, Any]] = field(default_factory=list)  # Any: json
    rewards: list[tuple[Any, ...]] = field(default_factory=list)


def service_file(directory: Path, settings: Mapping[str, Any]) -> Path | None:
    """Return the file of a service's runs; None: there is none.

    Args:
        directory: of the run.
        settings: of its configuration by path (Any: yaml).
    """
    given = settings.get("explorer.db_url")
    named = db_path(str(given)) if given else None
    found = [directory / "buffer" / "serve.db"]
    found += [Path(named)] if named and Path(named).is_absolute() else []
    return next((one for one in found if one.is_file()), None)


def read_service(path: Path, *, page: int) -> ServicePage:
    """Return the runs of a service, those called last first.

    Args:
        path: of the file.
        page: from 0, of 100 runs each.
    """
    shown = ServicePage(name=path.name)
    try:
        with closing(opened(path, tables=_TABLES)) as file:
            fetched = Bounds(name=path.name).fetched
            shown.states = fetched(file.execute(_STATES))
            rows = fetched(file.execute(_RUNS, (_MOST, page * _MOST)))
    except (sqlite3.Error, DataError, OverflowError) as error:
        shown.problem = f"{path.name} cannot be read as the file of a service: {told(error)}"
        return shown
    shown.runs = [dict(zip(_NAMES, row, strict=True)) for row in rows]
    for run in shown.runs:
        run["last_call"] = _time(run["last_call"])
    return shown


def read_served(path: Path, run: int) -> ServicePage:
    """Return the exchanges of a run of a service, and its rewards."""
    shown = ServicePage(name=path.name)
    own, rewards = "WHERE run = ? ORDER BY", "SELECT agent, reward, metrics, step FROM rewards"
    try:
        with closing(opened(path, tables=_TABLES)) as file:
            fetched = Bounds(name=path.name).fetched
            found = file.execute("SELECT name FROM runs WHERE number = ?", (run,)).fetchone()
            names = {name for _, name, *_ in file.execute("PRAGMA table_info(exchanges)")}
            digest = "digest" if "digest" in names else "NULL"
            query = (
                f"SELECT run, request, agent, experiences, {digest} FROM exchanges {own} request"
            )
            stored = fetched(file.execute(query, (run,)))
            shown.rewards = fetched(file.execute(f"{rewards} {own} number", (run,)))
    except (sqlite3.Error, DataError, OverflowError) as error:
        shown.problem = f"{path.name} cannot be read as the file of a service: {told(error)}"
        return shown
    if found is None:
        shown.problem = f"{path.name} has no run {run}: it was forgotten, or there was none."
        return shown
    shown.name = str(found[0])
    num_damaged = 0
    for *ids, body, digest in stored:
        try:
            if not _is_as_stored(*ids, body, digest=digest):
                raise DataError("it is not what was stored")
            shown.rows += [
                one.to_dict() for one in Experience.deserialize_many(bytes(memoryview(body)))
            ]
        except (DataError, TypeError, ValueError):  # text, where bytes belong
            num_damaged += 1
    if num_damaged:
        shown.problem = f"{num_damaged} of {len(stored)} exchanges are damaged."
    return shown


def _is_as_stored(*stored: Any, digest: Any) -> bool:  # Any: as the columns are
    """Return whether an exchange has its digest; of a version that wrote none, it is believed."""
    if digest is None or not isinstance(stored[-1], bytes):
        return True
    try:
        from trinity_serve.reply_digests import exchange_digest
    except ModuleNotFoundError:
        return True
    return exchange_digest(*stored) == digest


def _time(given: Any) -> str:  # Any: as the column is
    try:
        return datetime.fromtimestamp(given).astimezone().isoformat(" ", "seconds")[:19]
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
