"""The SQLite file of a service's runs: made, locked, brought to today's format, and checked.

One process at a time has it, the service that made it; an earlier format gets what it lacks.

How often it was written stands in it, and in the file of its lock: so it is seen at the next start
that its last changes, which lie in a ``-wal`` file until SQLite merges them, are gone.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
import threading
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from trinity.errors import DataError
from trinity_ledger.sqlite_file import (
    connect,
    refuse_damaged,
    refuse_damaged_wal,
    transaction,
)

from trinity_serve.reply_digests import ADDED, seal_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

logger = logging.getLogger("trinity.serve")

_FORMAT = 6
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
# The part of the schema that is about it; what each statement makes is not there before.
_FORGETTING = """
ALTER TABLE rewards ADD COLUMN is_forgotten INTEGER NOT NULL DEFAULT 0;
CREATE INDEX kept_rewards ON rewards (step) WHERE is_forgotten = 0;
CREATE INDEX runs_over ON runs (last_call) WHERE state != 'open';
CREATE TABLE forgotten (what TEXT PRIMARY KEY, count INTEGER NOT NULL);
"""
_REWARDED = """
ALTER TABLE runs ADD COLUMN last_reward REAL NOT NULL DEFAULT 0;
"""
_WRITES = """
CREATE TABLE writes (count INTEGER NOT NULL);
INSERT INTO writes VALUES (0);
"""
_LACKS = {  # what earlier formats have not
    2: _FORGETTING + _REWARDED + ADDED + _WRITES,
    3: _REWARDED + ADDED + _WRITES,
    4: ADDED + _WRITES,
    5: _WRITES,
}
_UNSEALED = 5  # the first format whose replies have a SHA-256
_NOTE_BYTES = 29  # in the lock's file
SHOWN = 3  # damaged rewards in a message


class RunFile:
    """The file, opened; any thread may use it.

    Args:
        path: of it; its folder is made.
        service: the identity of whose runs it holds.
        directory: where those are known, for who reads an error.
        is_expected: whether a start before this one had it; see ``SqliteRunStore``.

    Raises:
        DataError: it cannot be opened, is damaged or something else, or is another service's.

    Attributes:
        db: for use inside of :meth:`reading` and :meth:`writing`.
    """

    def __init__(self, path: Path, *, service: str, directory: str, is_expected: bool) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._held: IO[str] | None = None
        self._is_closed = False
        self._num_writes: int | None = None  # None: it is not known yet
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            refuse_damaged_wal(path)
            self._held = _held(path)
            self.db = connect(path)
        except (OSError, sqlite3.Error) as error:
            raise self._failed(error) from error
        try:
            with self.reading():
                self.db.execute("PRAGMA synchronous = NORMAL")
                refuse_damaged(self.db, name=str(path))
            with self.writing():
                self._check(service, directory, is_expected=is_expected)
            with self.reading():
                self.db.execute("PRAGMA journal_mode = WAL")
                (self._num_writes,) = self.db.execute("SELECT count FROM writes").fetchone()
            self._compare()
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
            with transaction(self.db, writes=True, is_durable=is_durable):
                yield
                if self._num_writes is not None:
                    self.db.execute("UPDATE writes SET count = ?", (self._num_writes + 1,))
            if self._num_writes is not None:
                self._num_writes += 1
                self._note()

    def _compare(self) -> None:
        """Say how many of the last changes are gone, by the count beside the file."""
        assert self._held is not None
        assert self._num_writes is not None
        digits, _, digest = os.pread(self._held.fileno(), _NOTE_BYTES, 0).partition(b" ")
        is_whole = digits.isdigit() and _note_of(int(digits)) == digits + b" " + digest
        missing = int(digits) - self._num_writes if is_whole else 0
        if missing > 0:
            logger.warning(
                "%s lacks the last %d changes that were stored in it: its -wal file was removed or "
                "cut, or an older copy took its place. Replies and rewards among them are lost, "
                "and nobody trains on them.",
                self._path, missing,
            )  # fmt: skip
        self._note()

    def _note(self) -> None:
        assert self._held is not None
        try:
            os.pwrite(self._held.fileno(), _note_of(self._num_writes or 0), 0)
        except OSError as error:
            raise self._failed(error) from error

    def _check(self, service: str, directory: str, *, is_expected: bool) -> None:
        version = self.db.execute("PRAGMA user_version").fetchone()[0]
        if not self.db.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0]:
            if is_expected:
                logger.warning(
                    "%s is empty or was not there: what an earlier start stored and did not train "
                    "is lost. This start begins with an empty file.",
                    self._path,
                )  # fmt: skip
            self._run(_SCHEMA + _FORGETTING + _REWARDED + ADDED + _WRITES)
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
            count = seal_all(self.db) if version < _UNSEALED else 0
            if count:
                logger.warning(
                    "an earlier version stored %d replies in %s without a SHA-256. They have one "
                    "now: what damages them from here on is found.",
                    count, self._path,
                )  # fmt: skip

    def _run(self, statements: str) -> None:
        for statement in statements.split(";")[:-1]:
            self.db.execute(statement)

    def damage(self, found: Mapping[int, str]) -> str:
        """Return what a person is told of damaged rewards, by their numbers."""
        whats = list(found.values())
        more = f", and {len(whats) - SHOWN} more" if whats[SHOWN:] else ""
        return f"{self._path} is damaged: {'; '.join(whats[:SHOWN])}{more}."

    def _failed(self, error: Exception) -> DataError:
        return DataError(
            f"{self._path} cannot be used: {error}. Free space, or set explorer.db_url to another "
            f"file, then run the same command; stored data is kept."
        )


def _note_of(count: int) -> bytes:
    """Return a count and its digest, by which a damaged one is not believed."""
    digits = b"%020d" % count
    return digits + b" %08x" % zlib.crc32(digits)


def _held(path: Path) -> IO[str]:
    """Return the lock beside the file; it is free again when this process ends, however it does.

    Raises:
        DataError: another process has it.
    """
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    file = os.fdopen(lock, "r+")
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
