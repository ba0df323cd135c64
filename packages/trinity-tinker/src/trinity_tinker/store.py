"""What the server keeps, in one SQLite file: sessions, runs, requests with results, checkpoints.

A request is in the file, with its body, before its id is told; a result before a poll can see it.
So a server that is killed goes on where it was. Each transaction is on the disk when it returns.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trinity.errors import DataError
from trinity_ledger.sqlite_file import connect, refuse_damaged, refuse_damaged_wal, transaction

from trinity_tinker.refusal import RequestError
from trinity_tinker.schema import FORMAT, SCHEMA, UPGRADES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["Request", "Result", "Store"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A unit of work of a run or of a sampling session, its ``scope``; the store has its body."""

    id: str
    owner: str
    scope: str
    seq: int
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """How a unit of work ended.

    Attributes:
        form: ``json``, ``proto`` (a protobuf message) or ``error`` (JSON with a category).
        body: for the client.
        summary: what is shown of it later, when the body is gone: numbers and short texts by name.
    """

    form: str
    body: bytes
    summary: Mapping[str, Any] = field(default_factory=dict)  # Any: values of JSON


class Store:
    """The file; any thread may use it.

    Args:
        path: of it; its folder is there.

    Raises:
        DataError: it cannot be opened, is damaged or something else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        try:
            refuse_damaged_wal(path)
            self._db = connect(path)
            self._db.row_factory = sqlite3.Row
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            refuse_damaged(self._db, name=str(path))
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            script = UPGRADES.get(version, "") if version else SCHEMA
            if script:
                end = f"PRAGMA user_version = {FORMAT}; COMMIT;"
                self._db.executescript(f"BEGIN; {script} {end}")
        except (OSError, sqlite3.Error) as error:
            raise DataError(f"{path} cannot be used: {error}. Use another folder.") from error
        if version not in {0, *UPGRADES}:
            raise DataError(f"{path} is of another version of trinity-tinker. Use another folder.")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write all that is inside, or nothing of it; it is on the disk afterwards."""
        with self._lock:
            if self._db.in_transaction:  # part of a larger one
                yield
                return
            with transaction(self._db, writes=True):
                yield

    def row(self, query: str, *values: Any) -> sqlite3.Row | None:
        """Return the first row of a query, None where there is none (Any: as columns are)."""
        with self._lock:
            found: sqlite3.Row | None = self._db.execute(query, values).fetchone()
            return found

    def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        """Return the rows of a query (Any: as columns are)."""
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def write(self, query: str, *values: Any) -> int:
        """Run one statement; return how many rows it changed (Any: as columns are)."""
        with self.writing():
            return self._db.execute(query, values).rowcount

    def owned(self, table: str, key: str, *, owner: str) -> sqlite3.Row:
        """Return the row of a session, model, sampling session, request or checkpoint.

        Raises:
            RequestError: 404, there is none, or it is somebody else's.
        """
        key_column = "path" if table == "checkpoints" else "id"
        columns = "finished, form, result, retrieved" if table == "requests" else "*"
        query = f"SELECT {columns} FROM {table} WHERE {key_column} = ? AND owner = ?"
        found = self.row(query, key, owner)
        if found is None:
            raise RequestError(404, f"there is no {table[:-1]} {key!r}.")
        return found

    def add_request(
        self, *, owner: str, scope: str, seq: int, kind: str, body: bytes
    ) -> tuple[str, bool]:
        """Note a request; return its id, and whether it is new.

        Raises:
            RequestError: 422, the number was given to a request with another body.
        """
        digest = hashlib.sha256(kind.encode() + b"\0" + body).digest()
        with self.writing():
            known = self.row(
                "SELECT id, digest, owner FROM requests WHERE scope = ? AND seq = ?", scope, seq
            )
            if known is not None:
                if known["digest"] != digest or known["owner"] != owner:
                    raise RequestError(
                        422, f"request {seq} of {scope} was sent before, with another body."
                    )
                return str(known["id"]), False
            name = secrets.token_hex(16)
            self.write(
                "INSERT INTO requests (id, owner, scope, seq, kind, body, digest, made) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                *(name, owner, scope, seq, kind, body, digest, time.time()),
            )
        return name, True

    def finish(self, request: Request, result: Result, *, keeps_body: bool) -> None:
        """Note how a request ended; what it was asked with goes, if nothing is made of it again."""
        body = ", body = NULL" if not keeps_body else ""
        self.write(
            f"UPDATE requests SET finished = ?, form = ?, result = ?, summary = ?{body} "
            "WHERE id = ?",
            *(time.time(), result.form, result.body, json.dumps(result.summary), request.id),
        )

    def unfinished(self) -> list[Request]:
        """Return what was asked for and has no result, oldest first."""
        return self.requests("finished IS NULL ORDER BY made, seq")

    def requests(self, where: str, *values: Any) -> list[Request]:
        """Return requests (Any: as columns are); their bodies together may not fit in memory."""
        found = self.rows(
            f"SELECT id, owner, scope, seq, kind FROM requests WHERE {where}", *values
        )
        return [Request(**dict(row)) for row in found]

    def body_of(self, request: str) -> bytes:
        """Return what a request was sent with; b"": it is done, and not needed again."""
        found = self.row("SELECT body FROM requests WHERE id = ?", request)
        return b"" if found is None else found["body"] or b""

    def gradients_since(self, model: str, *, seq: int, before: int) -> list[Request]:
        """Return the passes of a run after its state, whose gradients are no longer in memory."""
        return self.requests(
            "scope = ? AND seq > ? AND seq < ? AND kind = 'forward_backward' "
            "AND form = 'proto' AND body IS NOT NULL ORDER BY seq",
            *(model, seq, before),
        )

    def forget_gradients(self, model: str) -> None:
        """Let the passes of a run since its state not be made again."""
        self.write(
            "UPDATE requests SET body = NULL WHERE scope = ? AND finished IS NOT NULL", model
        )

    def note_state(self, model: str, *, seq: int, folder: str) -> None:
        """Note where the state of a run is; what led to it is not needed again."""
        with self.writing():
            self.write(
                "UPDATE models SET state_seq = ?, state_folder = ? WHERE id = ?", seq, folder, model
            )
            self.write(
                "UPDATE requests SET body = NULL WHERE scope = ? AND seq <= ? "
                "AND finished IS NOT NULL",
                *(model, seq),
            )

    def next_seq(self, model: str) -> int:
        """Return the number of the first request of a run that has no result."""
        found = self.row(
            "SELECT MAX(seq) + 1 AS seq FROM requests WHERE scope = ? AND finished IS NOT NULL",
            model,
        )
        return int(found["seq"] or 0) if found is not None else 0

    def add_sampling(
        self, *, owner: str, session: str, seq: int, base: str, path: str | None
    ) -> str:
        """Note a sampling session, once for each number of a session; return its id.

        Raises:
            RequestError: 422, the number is that of one with other weights.
        """
        name = f"{session}:sample:{seq}"
        with self.writing():
            known = self.row("SELECT * FROM samplings WHERE id = ?", name)
            if known is None:
                self.write(
                    "INSERT INTO samplings (id, owner, session, seq, base, path, made) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    *(name, owner, session, seq, base, path, time.time()),
                )
            elif (known["base"], known["path"]) != (base, path):
                raise RequestError(422, f"{name} is a sampling session with other weights.")
        return name

    def note_retrieved(self, request: str) -> None:
        """Note that a client has a result, if it is the first time."""
        now = time.time()
        self.write(
            "UPDATE requests SET retrieved = ? WHERE id = ? AND retrieved IS NULL", now, request
        )

    def forget_results(self, *, retrieved_s: float, unfetched_s: float) -> int:
        """Forget results that a client has had for so long, or that none fetched for so long.

        Returns:
            How many nobody fetched; their summaries say so.
        """
        now = time.time()
        with self.writing():
            self.write(
                "UPDATE requests SET result = NULL WHERE result IS NOT NULL AND retrieved < ?",
                now - retrieved_s,
            )
            return self.write(
                "UPDATE requests SET result = NULL, "
                "summary = json_set(summary, '$.result', 'dropped, never fetched') "
                "WHERE result IS NOT NULL AND retrieved IS NULL AND finished < ?",
                now - unfetched_s,
            )

    def check_base(self, name: str, *, digest: str) -> None:
        """Hold that a base model has the weights that runs and samplers of this file were made of.

        Raises:
            DataError: it has others.
        """
        with self.writing():
            known = self.row("SELECT digest FROM bases WHERE name = ?", name)
            is_used = self.row(
                "SELECT 1 FROM models WHERE base = ? UNION ALL "
                "SELECT 1 FROM samplings WHERE base = ? LIMIT 1",
                *(name, name),
            )
            if known is not None and known["digest"] != digest and is_used is not None:
                raise DataError(
                    f"--model {name} has other weights, or another --precision, than the runs in "
                    f"{self._path} were made with: digest {digest[:12]}, not "
                    f"{known['digest'][:12]}. Serve the weights of before, give the others a name "
                    f"of their own, or use another --data."
                )
            self.write("INSERT OR REPLACE INTO bases VALUES (?, ?)", name, digest)
