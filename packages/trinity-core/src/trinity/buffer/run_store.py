"""The runs of a service in an SQLite file.

A reply is handed to the system before its client hears it, so it outlives a killed process; rewards
and what was taken are on the disk before their call returns, and all replies before them with them.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trinity.common.experience import Experience
from trinity.common.ports import DueRun, RewardRefusedError, ServedRun
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["SqliteRunStore"]

_FORMAT = 1
_SCHEMA = """
CREATE TABLE runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
    task TEXT NOT NULL, state TEXT NOT NULL, last_call REAL NOT NULL
);
CREATE INDEX open_runs ON runs (last_call) WHERE state = 'open';
CREATE INDEX owners ON runs (owner) WHERE owner != '';
CREATE TABLE exchanges (
    run INTEGER NOT NULL, request INTEGER NOT NULL, agent TEXT NOT NULL,
    num_experiences INTEGER NOT NULL, experiences BLOB NOT NULL, PRIMARY KEY (run, request)
);
CREATE TABLE rewards (
    number INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, agent TEXT NOT NULL,
    reward REAL NOT NULL, metrics TEXT NOT NULL, is_due INTEGER NOT NULL DEFAULT 0, step INTEGER,
    UNIQUE (run, agent)
);
CREATE INDEX waiting_rewards ON rewards (is_due) WHERE step IS NULL;
"""
# Which exchanges a reward is for: an agent's own, or those of all agents that have none.
_OF_REWARD = """
run = :run AND (agent = :agent OR (:agent = '' AND agent NOT IN
    (SELECT agent FROM rewards WHERE run = :run AND agent != '')))
"""
_NUM_OF_REWARD = f"SELECT COALESCE(SUM(num_experiences), 0) FROM exchanges WHERE {_OF_REWARD}"


class SqliteRunStore:
    """Keeps runs in one file; see ``RunStore``.

    Args:
        path: the file; its folder is made.

    Raises:
        DataError: it cannot be opened, or is something else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._is_closed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise self._failed(error) from error
        with self._write():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            is_new = not self._db.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]
            if not is_new and version != _FORMAT:
                raise DataError(
                    f"{path} is no file of trinity serve, or another version's. Set "
                    f"explorer.db_url to a file of its own."
                )
            if is_new:
                for statement in _SCHEMA.split(";")[:-1]:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {_FORMAT}")
        with self._lock, self._told():
            self._db.execute("PRAGMA journal_mode = WAL")

    def run(self, name: str, *, task: str = "") -> ServedRun:
        """Return the run of that name; it begins where there is none."""
        with self._lock, self._told():
            row = self._found("name = ?", name)
        return self._served(row) if row else self._begun(name, task=task)

    def unnamed(self, owner: str, *, task: str = "") -> ServedRun:
        """Return the open run of who gives it no name; it begins where there is none."""
        with self._lock, self._told():
            row = self._found("owner = ? AND state = 'open'", owner)
            count = "SELECT COUNT(*) FROM runs WHERE owner = ?"
            num_before = self._db.execute(count, (owner,)).fetchone()[0]
        if row:
            return self._served(row)
        return self._begun(f"auto-{owner}-{num_before}", owner=owner, task=task)

    def latest(self, owner: str) -> str:
        """Return the name of the last run of who gives it no name; "": there was none."""
        with self._lock, self._told():
            row = self._found("owner = ?", owner)
        return row[1] if row else ""

    def keep(
        self, run: int, experiences: Sequence[Experience], *, request: int, agent: str
    ) -> None:
        """Store what a call of a run was answered with."""
        stored = Experience.serialize_many(experiences)
        with self._write():
            self._db.execute(
                "INSERT INTO exchanges VALUES (?, ?, ?, ?, ?)",
                (run, request, agent, len(experiences), stored),
            )
            self._db.execute("UPDATE runs SET last_call = ? WHERE number = ?", (time.time(), run))

    def reward(
        self, name: str, reward: float, *, agent: str = "", metrics: Mapping[str, float]
    ) -> tuple[int, int]:
        """Reward a run, or one of its agents; return the run and how many experiences that are."""
        with self._write(is_durable=True):
            row = self._found("name = ?", name)
            if row is None:
                raise RewardRefusedError("unknown")
            number, _, state = row
            rewarded = self._rows("SELECT agent FROM rewards WHERE run = ?", number)
            if (agent,) in rewarded or ("",) in rewarded:
                raise RewardRefusedError("given")
            if state == "dropped":
                raise RewardRefusedError("dropped")
            of = {"run": number, "agent": agent}
            num_experiences = self._db.execute(_NUM_OF_REWARD, of).fetchone()[0]
            if not num_experiences:
                query = "SELECT DISTINCT agent FROM exchanges WHERE run = ? ORDER BY agent"
                agents = [one for (one,) in self._rows(query, number)]
                raise RewardRefusedError("empty", agents=agents)
            self._db.execute(
                "INSERT INTO rewards (run, agent, reward, metrics) VALUES (?, ?, ?, ?)",
                (number, agent, reward, json.dumps(dict(metrics))),
            )
            if not agent:
                self._db.execute("UPDATE runs SET state = 'rewarded' WHERE number = ?", (number,))
        return number, num_experiences

    def commit(self) -> tuple[int, int]:
        """Make what is rewarded due; return how many rewards and experiences that are."""
        with self._write(is_durable=True):
            due = self._rows("SELECT run, agent FROM rewards WHERE is_due = 0")
            counts = [
                self._db.execute(_NUM_OF_REWARD, {"run": run, "agent": agent}).fetchone()[0]
                for run, agent in due
            ]
            self._db.execute("UPDATE rewards SET is_due = 1 WHERE is_due = 0")
        return len(counts), sum(counts)

    def due(self) -> list[DueRun]:
        """Return what is due and not taken, in the order of the rewards."""
        query = """
            SELECT rewards.number, run, name, task, agent, reward, metrics
            FROM rewards JOIN runs ON runs.number = run
            WHERE step IS NULL AND is_due = 1 ORDER BY rewards.number
        """
        stored = f"SELECT experiences FROM exchanges WHERE {_OF_REWARD} ORDER BY request"
        with self._lock, self._told():
            found = [
                (row, self._db.execute(stored, {"run": row[1], "agent": row[4]}).fetchall())
                for row in self._rows(query)
            ]
        return [
            DueRun(
                reward_number=number,
                run_number=run,
                name=name,
                task=task,
                agent=agent,
                reward=reward,
                metrics=json.loads(metrics),
                experiences=tuple(one for (b,) in raw for one in Experience.deserialize_many(b)),
            )
            for (number, run, name, task, agent, reward, metrics), raw in found
        ]

    def taken(self, rewards: Sequence[int], *, step: int) -> None:
        """Note that the explorer took these rewards, by their numbers, in a step."""
        with self._write(is_durable=True):
            self._db.executemany(
                "UPDATE rewards SET step = ? WHERE number = ?", [(step, one) for one in rewards]
            )

    def rewind(self, step: int) -> None:
        """Make due again what was taken in later steps, which are to be made once more."""
        with self._write(is_durable=True):
            self._db.execute("UPDATE rewards SET step = NULL WHERE step > ?", (step,))

    def drop(self, *, before: float) -> list[int]:
        """Forget the exchanges without a reward of runs that were silent since; return the runs."""
        query = "SELECT number FROM runs WHERE state = 'open' AND last_call < ?"
        with self._lock, self._told():
            silent = [number for (number,) in self._rows(query, before)]
        if not silent:
            return []
        with self._write():
            for number in silent:
                own = "SELECT agent FROM rewards WHERE run = exchanges.run"
                self._db.execute(
                    f"DELETE FROM exchanges WHERE run = ? AND agent NOT IN ({own})", (number,)
                )
                self._db.execute("UPDATE runs SET state = 'dropped' WHERE number = ?", (number,))
        return silent

    def counts(self) -> dict[str, int]:
        """Return how many there are of each state."""
        queries = {
            "open": "runs WHERE state = 'open'",
            "rewarded": "rewards WHERE step IS NULL AND is_due = 0",
            "due": "rewards WHERE step IS NULL AND is_due = 1",
            "taken": "rewards WHERE step IS NOT NULL",
            "dropped": "runs WHERE state = 'dropped' "
            "AND NOT EXISTS (SELECT 1 FROM rewards WHERE run = runs.number)",
        }
        with self._lock, self._told():
            return {
                name: int(self._db.execute(f"SELECT COUNT(*) FROM {query}").fetchone()[0])
                for name, query in queries.items()
            }

    def close(self) -> None:
        """Free the file; safe to call twice."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._db.close()

    def _begun(self, name: str, *, owner: str = "", task: str) -> ServedRun:
        with self._write():
            cursor = self._db.execute(
                "INSERT INTO runs (name, owner, task, state, last_call) "
                "VALUES (?, ?, ?, 'open', ?)",
                (name, owner, task, time.time()),
            )
        assert cursor.lastrowid is not None, "it was inserted"
        return ServedRun(number=cursor.lastrowid, name=name, state="open")

    def _served(self, row: tuple[int, str, str]) -> ServedRun:
        number, name, state = row
        agents = "SELECT agent FROM rewards WHERE run = ? AND agent != ''"
        calls = "SELECT COALESCE(MAX(request) + 1, 0) FROM exchanges WHERE run = ?"
        with self._lock, self._told():
            return ServedRun(
                number=number,
                name=name,
                state=state,  # type: ignore[arg-type]  # as the schema has it
                rewarded_agents=frozenset(one for (one,) in self._rows(agents, number)),
                num_calls=self._db.execute(calls, (number,)).fetchone()[0],
            )

    def _found(self, condition: str, value: str) -> tuple[int, str, str] | None:
        query = f"SELECT number, name, state FROM runs WHERE {condition} ORDER BY number DESC"
        row: tuple[int, str, str] | None = self._db.execute(query, (value,)).fetchone()
        return row

    def _rows(self, query: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]
        return self._db.execute(query, values).fetchall()

    @contextmanager
    def _write(self, *, is_durable: bool = False) -> Iterator[None]:
        """Write all that is inside, or nothing of it."""
        with self._lock, self._told():
            self._db.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> DataError:
        return DataError(
            f"{self._path} cannot be used: {error}. Make room, or set explorer.db_url to another "
            f"file, then run the same command: what was stored stays."
        )
