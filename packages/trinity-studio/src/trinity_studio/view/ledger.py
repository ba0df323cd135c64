"""The ledger of a run that keeps one in a file, by its views; nothing in it is changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trinity.common.config.database_path import address_of
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["LedgerPage", "ledger_file", "read_ledger"]

_PATH = "buffer.trainer_input.experience_buffer.path"
_STEPS = """
SELECT steps.train_step, experiences, tokens, mean_reward, oldest_version, newest_version, mean_age
FROM steps JOIN ages ON ages.train_step = steps.train_step
ORDER BY steps.train_step DESC LIMIT ?
"""
_TASKS = """
SELECT batch, place, state, outcome, experiences, trained, mean_reward FROM tasks
ORDER BY began DESC LIMIT ?
"""
_COUNTS = "SELECT COUNT(*), COUNT(train_place), SUM(dropped IS NOT NULL) FROM experience"
_MOST = 60
_WAIT_S = 0.5

Rows = list[tuple[Any, ...]]  # Any: as the columns are


@dataclass(kw_only=True)
class LedgerPage:
    """What a page shows of a ledger.

    Attributes:
        path: of the file.
        problem: why it cannot be read; empty: it can.
        counts: experiences, those that were trained, those that were dropped.
        steps: the last optimizer steps.
        tasks: the last tasks.
    """

    path: Path
    problem: str = ""
    counts: tuple[int, int, int] = (0, 0, 0)
    steps: Rows = field(default_factory=list)
    tasks: Rows = field(default_factory=list)


def ledger_file(directory: Path, settings: Mapping[str, Any]) -> Path | None:
    """Return the file of a run's ledger; None: it has none, or one that is no file.

    Args:
        directory: of the run.
        settings: of its configuration by path (Any: yaml).
    """
    own = directory / "buffer" / "ledger.db"
    if own.is_file():
        return own
    named = settings.get(_PATH)
    if settings.get(_PATH.replace(".path", ".storage_type")) != "sql" or not named:
        return None
    try:
        file = address_of(str(named)).file
    except ConfigError:
        return None
    return file if file is not None and file.is_file() else None


def read_ledger(path: Path) -> LedgerPage:
    """Return what a ledger says now."""
    page = LedgerPage(path=path)
    try:
        with closing(_opened(path)) as database:
            experiences, trained, dropped = database.execute(_COUNTS).fetchone()
            page.counts = (experiences, trained, dropped or 0)
            page.steps = database.execute(_STEPS, (_MOST,)).fetchall()
            page.tasks = database.execute(_TASKS, (_MOST,)).fetchall()
    except sqlite3.Error as error:
        page.problem = f"{path.name} cannot be read as a ledger: {error}"
    return page


def _opened(path: Path) -> sqlite3.Connection:
    """Return a connection that cannot write, and leaves no file beside one that is at rest."""
    is_used = path.with_name(f"{path.name}-wal").exists()
    how = "mode=ro" if is_used else "mode=ro&immutable=1"
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?{how}", uri=True, timeout=_WAIT_S)
