"""The SQLite file of a service: one service at a time has it, and it forgets runs that are over.

What nobody can ask for again goes: the replies of a reward that every checkpoint was trained on, or
that the newest one was and that are old; then, where the run is old and every checkpoint was
trained on it, the run and its rewards: till then a start from an older one counts what it lacks.
What is rewarded and not trained stays, however old. What went is counted in the file.
"""

from __future__ import annotations

import errno
import fcntl
import sqlite3
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# The part of the schema that is about it; what each statement makes is not there before.
FORGETTING = """
ALTER TABLE rewards ADD COLUMN is_forgotten INTEGER NOT NULL DEFAULT 0;
CREATE INDEX kept_rewards ON rewards (step) WHERE is_forgotten = 0;
CREATE INDEX runs_over ON runs (last_call) WHERE state != 'open';
CREATE TABLE forgotten (what TEXT PRIMARY KEY, count INTEGER NOT NULL);
"""
REWARDED = """
ALTER TABLE runs ADD COLUMN last_reward REAL NOT NULL DEFAULT 0;
"""
# Which exchanges a reward is for: an agent's own, or those of all agents that have none.
OF_REWARD = """
run = :run AND (agent = :agent OR (:agent = '' AND agent NOT IN
    (SELECT agent FROM rewards WHERE run = :run AND agent != '')))
"""
_REWARDS = """
SELECT rewards.number, run, agent FROM rewards JOIN runs ON runs.number = run
WHERE is_forgotten = 0 AND step <= :trained AND state != 'open'
AND (step <= :settled OR (last_call < :before AND last_reward < :before)) LIMIT :limit
"""
_RUNS = """
SELECT number, state FROM runs WHERE state != 'open'
AND last_call < :before AND last_reward < :before
AND NOT EXISTS (SELECT 1 FROM rewards WHERE run = runs.number
    AND (is_forgotten = 0 OR step > :settled))
AND NOT EXISTS (SELECT 1 FROM exchanges WHERE run = runs.number) LIMIT :limit
"""


def forget(db: sqlite3.Connection, *, settled: int, trained: int, before: float, limit: int) -> int:
    """Forget what nobody can ask for again; return how many rewards and runs that were.

    Args:
        db: inside of a transaction.
        settled: the last step that every checkpoint has seen.
        trained: the last step that the newest one has seen.
        before: seconds since 1970; what was called and rewarded last before it is old.
        limit: most rewards, and most runs, of one call.
    """
    steps = {"settled": settled, "trained": max(settled, trained)}
    rewards = db.execute(_REWARDS, {**steps, "before": before, "limit": limit}).fetchall()
    for number, run, agent in rewards:
        of = {"run": run, "agent": agent}
        gone = f"SELECT COALESCE(SUM(num_experiences), 0) FROM exchanges WHERE {OF_REWARD}"
        _count(db, "experiences", db.execute(gone, of).fetchone()[0])
        db.execute(f"DELETE FROM exchanges WHERE {OF_REWARD}", of)
        db.execute("UPDATE rewards SET is_forgotten = 1 WHERE number = ?", (number,))
    runs = db.execute(_RUNS, {"settled": settled, "before": before, "limit": limit}).fetchall()
    for run, _ in runs:
        num_rewards = db.execute("DELETE FROM rewards WHERE run = ?", (run,)).rowcount
        _count(db, "taken", num_rewards)
        _count(db, "dropped", int(not num_rewards))
        db.execute("DELETE FROM runs WHERE number = ?", (run,))
    _count(db, "runs", len(runs))
    return len(rewards) + len(runs)


def forgotten(db: sqlite3.Connection) -> dict[str, int]:
    """Return how many experiences and runs were forgotten, and as what their runs had counted."""
    counts = {"experiences": 0, "runs": 0, "taken": 0, "dropped": 0}
    return counts | dict(db.execute("SELECT what, count FROM forgotten").fetchall())


def num_lost(db: sqlite3.Connection, step: int) -> int:
    """Return how many rewards later steps took whose replies are gone: nobody trains them again."""
    query = "SELECT COUNT(*) FROM rewards WHERE step > ? AND is_forgotten = 1"
    return int(db.execute(query, (step,)).fetchone()[0])


def _count(db: sqlite3.Connection, what: str, number: int) -> None:
    if number:
        db.execute(
            "INSERT INTO forgotten VALUES (?, ?) "
            "ON CONFLICT (what) DO UPDATE SET count = count + excluded.count",
            (what, number),
        )


_FORMAT = 4
_LACKS = {2: FORGETTING + REWARDED, 3: REWARDED}  # what earlier formats have not
_SCHEMA = """
CREATE TABLE service (id TEXT NOT NULL, directory TEXT NOT NULL);
CREATE TABLE runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
    is_named INTEGER NOT NULL, task TEXT NOT NULL, state TEXT NOT NULL, last_call REAL NOT NULL
);
CREATE INDEX open_runs ON runs (last_call) WHERE state = 'open';
CREATE INDEX owners ON runs (owner, last_call);
CREATE INDEX unnamed ON runs (owner, state) WHERE is_named = 0;
CREATE TABLE exchanges (
    run INTEGER NOT NULL, request INTEGER NOT NULL, agent TEXT NOT NULL,
    num_experiences INTEGER NOT NULL, experiences BLOB NOT NULL, PRIMARY KEY (run, request)
);
CREATE TABLE rewards (
    number INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, agent TEXT NOT NULL,
    reward REAL NOT NULL, metrics TEXT NOT NULL, in_commit INTEGER, step INTEGER,
    num_failures INTEGER NOT NULL DEFAULT 0, UNIQUE (run, agent)
);
CREATE INDEX waiting_rewards ON rewards (in_commit) WHERE step IS NULL;
"""


class RunFile:
    """The file, opened; any thread may use it.

    Args:
        path: of it; its folder is made.
        service: the identity of whose runs it holds.
        directory: where those are known, for who reads an error.

    Raises:
        DataError: it cannot be opened, is something else, or is another service's.

    Attributes:
        db: for use inside of :meth:`reading` and :meth:`writing`.
    """

    def __init__(self, path: Path, *, service: str, directory: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._held: IO[str] | None = None
        self._is_closed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._held = _held(path)
            self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise self._failed(error) from error
        try:
            with self.writing():
                self._check(service, directory)
            with self.reading():
                self.db.execute("PRAGMA journal_mode = WAL")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the file; safe to call twice."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self.db.close()
                if self._held is not None:
                    self._held.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read what is inside as one.

        Raises:
            DataError: the file cannot be used.
        """
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise self._failed(error) from error

    @contextmanager
    def writing(self, *, is_durable: bool = False) -> Iterator[None]:
        """Write all that is inside, or nothing of it.

        Raises:
            DataError: the file cannot be used.
        """
        with self.reading():
            self.db.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            finally:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")

    def _check(self, service: str, directory: str) -> None:
        version = self.db.execute("PRAGMA user_version").fetchone()[0]
        if not self.db.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]:
            self._run(_SCHEMA + FORGETTING + REWARDED)
            self.db.execute("INSERT INTO service VALUES (?, ?)", (service, directory))
            self.db.execute(f"PRAGMA user_version = {_FORMAT}")
            return
        if version not in {_FORMAT, *_LACKS}:
            raise DataError(
                f"{self._path} is not a file of trinity serve, or of another version. Set "
                f"explorer.db_url to another file."
            )
        made_by, made_in = self.db.execute("SELECT id, directory FROM service").fetchone()
        if made_by != service:
            raise DataError(
                f"{self._path} belongs to another service, with the run directory {made_in}. Set "
                f"explorer.db_url to another file."
            )

        if version in _LACKS:
            self._run(_LACKS[version])
            self.db.execute(f"PRAGMA user_version = {_FORMAT}")

    def _run(self, statements: str) -> None:
        for statement in statements.split(";")[:-1]:
            self.db.execute(statement)

    def _failed(self, error: Exception) -> DataError:
        return DataError(
            f"{self._path} cannot be used: {error}. Free space, or set explorer.db_url to another "
            f"file, then run the same command; stored data is kept."
        )


def _held(path: Path) -> IO[str]:
    """Return the lock beside the file; it is free again when this process ends, however it does.

    Raises:
        DataError: another process has it.
    """
    file = path.with_name(f"{path.name}.lock").open("a")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # children do not inherit it
    except OSError as error:
        file.close()
        if error.errno not in {errno.EACCES, errno.EAGAIN}:
            raise
        raise DataError(
            f"another trinity serve uses {path}. End it, or set explorer.db_url to another file."
        ) from error
    return file
