"""The runs of a service in an SQLite file, which one service at a time has: the one that made it.

A reply is handed to the system before its client hears it, so it outlives a killed process; rewards
and what was taken are on the disk before their call returns, and all replies before them with them.

The file does not grow without end. What nobody can ask for again is forgotten: the replies of a
reward that every checkpoint was trained on, or that the newest one was and that are old; then,
where the run is old and every checkpoint was trained on it, the run and its rewards: till then a
start from an older one counts what it lacks. What is rewarded and not trained stays, however old.
What went is counted in the file.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING

from trinity.common.experience import Experience

from trinity_serve.forgetting import forget, forgotten, num_lost
from trinity_serve.ports import (
    OWN_NAMES,
    DamagedReplyError,
    DueRun,
    RewardRefusedError,
    RunOverError,
    ServedRun,
)
from trinity_serve.reply_digests import (
    OF_REWARD,
    damage_of,
    exchange_digest,
    seal_reward,
)
from trinity_serve.run_file import RunFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

logger = logging.getLogger("trinity.serve")

AT_ONCE = 100  # rewards, and runs, that are forgotten in one go: a call may wait for it
MAX_FAILURES = 2  # what cannot be processed as often is set aside
_NUM_OF_REWARD = f"SELECT COALESCE(SUM(num_experiences), 0) FROM exchanges WHERE {OF_REWARD}"
_IS_DUE = f"step IS NULL AND in_commit IS NOT NULL AND num_failures < {MAX_FAILURES}"
_IS_UNCOMMITTED = f"in_commit IS NULL AND num_failures < {MAX_FAILURES}"
_OLDEST_COMMIT = f"""
SELECT rewards.number, run, name, task, agent, reward, metrics, num_failures
FROM rewards JOIN runs ON runs.number = run
WHERE {_IS_DUE} AND in_commit = (SELECT MIN(in_commit) FROM rewards WHERE {_IS_DUE})
ORDER BY rewards.number
"""


class SqliteRunStore:
    """Keeps runs in one file; see ``RunStore``.

    Args:
        path: the file; its folder is made.
        service: the identity of whose runs they are.
        directory: where those are known, for who reads an error.
        is_expected: whether a start before this one had it; where it is not there, this is said.

    Raises:
        DataError: it cannot be opened, is damaged or something else, or is another service's.
    """

    def __init__(
        self, path: Path, *, service: str = "", directory: str = "", is_expected: bool = False
    ) -> None:
        self._file = RunFile(path, service=service, directory=directory, is_expected=is_expected)
        self._db = self._file.db

    def run(self, name: str, *, owner: str = "", task: str = "") -> ServedRun:
        """Return the run of that name; it begins where there is none."""
        with self._file.writing():
            row = self._found("name = ?", name)
            return self._served(row or self._begun(name, owner=owner, task=task, is_named=True))

    def unnamed(self, owner: str, *, task: str = "") -> ServedRun:
        """Return the open run of who gives it no name; it begins where there is none."""
        with self._file.writing():
            row = self._found("owner = ? AND state = 'open' AND is_named = 0", owner)
            if row is None:
                # The number of the run that begins: no other run is ever given it.
                last = "SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = 'runs'"
                name = f"{OWN_NAMES}{owner}-{self._rows(last)[0][0] + 1}"
                row = self._begun(name, owner=owner, task=task, is_named=False)
            return self._served(row)

    def latest(self, owner: str) -> str:
        """Return the name of the run that somebody called last; "": there was none."""
        with self._file.reading():
            row = self._found("owner = ?", owner, order="last_call DESC, number DESC")
        return row[1] if row else ""

    def touch(self, run: int, *, agent: str) -> None:
        """Note that a call of a run is accepted."""
        with self._file.writing():
            self._check_open(run, agent)
            self._note_call(run)

    def keep(
        self, run: int, experiences: Sequence[Experience], *, request: int, agent: str
    ) -> None:
        """Store what a call of a run was answered with."""
        stored = Experience.serialize_many(experiences)
        digest = exchange_digest(run, request, agent, stored)
        with self._file.writing():
            self._check_open(run, agent)
            self._db.execute(
                "INSERT INTO exchanges VALUES (?, ?, ?, ?, ?, ?)",
                (run, request, agent, len(experiences), stored, digest),
            )
            self._note_call(run)

    def reward(
        self, name: str, reward: float, *, agent: str = "", metrics: Mapping[str, float]
    ) -> tuple[int, int]:
        """Reward a run, or one of its agents; return the run and how many experiences that are."""
        with self._file.writing(is_durable=True):
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
            given = self._db.execute(
                "INSERT INTO rewards (run, agent, reward, metrics) VALUES (?, ?, ?, ?)",
                (number, agent, reward, json.dumps(dict(metrics))),
            )
            assert given.lastrowid is not None, "it was inserted"
            seal_reward(self._db, given.lastrowid)
            query = "UPDATE runs SET last_reward = ? WHERE number = ?"
            self._db.execute(query, (time.time(), number))
            if not agent:
                self._db.execute("UPDATE runs SET state = 'rewarded' WHERE number = ?", (number,))
        return number, num_experiences

    def commit(self) -> tuple[int, int]:
        """Make what is rewarded due; return how many rewards and experiences that are.

        Raises:
            DamagedReplyError: some of it is not what was stored. It is set aside, and nothing is
                made due: the next call makes the rest due.
        """
        with self._file.writing(is_durable=True):
            due = self._rows(f"SELECT number, run, agent FROM rewards WHERE {_IS_UNCOMMITTED}")
            damaged = self._damaged([number for number, _, _ in due])
            counts = [
                self._db.execute(_NUM_OF_REWARD, {"run": run, "agent": agent}).fetchone()[0]
                for _, run, agent in due
            ]
            if damaged:
                self._db.executemany(
                    f"UPDATE rewards SET num_failures = {MAX_FAILURES} WHERE number = ?",
                    [(number,) for number in damaged],
                )
            else:
                (last,) = self._rows("SELECT COALESCE(MAX(in_commit), 0) FROM rewards")[0]
                update = f"UPDATE rewards SET in_commit = ? WHERE {_IS_UNCOMMITTED}"
                self._db.execute(update, (last + 1,))
        if damaged:
            raise DamagedReplyError(
                f"{self._file.damage(damaged)} Nothing was committed. What is damaged is set aside "
                f"and will not be trained; commit again to train the rest."
            )
        return len(counts), sum(counts)

    def due(self) -> list[DueRun]:
        """Return what is due and not taken of the oldest commit, in the order of the rewards.

        Of a commit that could not be processed whole, it is one group.

        Raises:
            DamagedReplyError: some of it is not what was stored; the second time it is set aside.
        """
        while True:
            runs, damaged = self._due()
            if not damaged:
                return runs
            text = self._file.damage(damaged)
            if not self.failed(list(damaged)):
                raise DamagedReplyError(
                    f"{text} Restore the file from a copy and run the same command; the next start "
                    f"without a copy sets it aside and trains the rest."
                )
            logger.warning("%s It is set aside, and the rest is trained.", text)

    def _due(self) -> tuple[list[DueRun], dict[int, str]]:
        """Return what is due, or what of it is damaged, by the numbers of the rewards."""
        stored = f"SELECT experiences FROM exchanges WHERE {OF_REWARD} ORDER BY request"
        with self._file.reading():
            rows = self._rows(_OLDEST_COMMIT)
            if any(row[-1] for row in rows):
                rows = [row for row in rows if row[3:5] == rows[0][3:5]]
            damaged = self._damaged([row[0] for row in rows])
            if damaged:
                return [], damaged
            found = [
                (row, self._db.execute(stored, {"run": row[1], "agent": row[4]}).fetchall())
                for row in rows
            ]
        due = [
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
            for (number, run, name, task, agent, reward, metrics, _), raw in found
        ]
        return due, {}

    def taken(self, rewards: Sequence[int], *, step: int) -> None:
        """Note that the explorer took these rewards, by their numbers, in a step."""
        with self._file.writing(is_durable=True):
            self._db.executemany(
                "UPDATE rewards SET step = ? WHERE number = ?", [(step, one) for one in rewards]
            )

    def failed(self, rewards: Sequence[int]) -> bool:
        """Note that these could not be processed; return whether they are set aside now."""
        with self._file.writing(is_durable=True):
            self._db.executemany(
                "UPDATE rewards SET step = NULL, num_failures = num_failures + 1 WHERE number = ?",
                [(one,) for one in rewards],
            )
            counts = [
                self._rows("SELECT num_failures FROM rewards WHERE number = ?", one)[0][0]
                for one in rewards
            ]
        return min(counts, default=0) >= MAX_FAILURES

    def rewind(self, step: int) -> int:
        """Make due again what was taken in later steps; return how many rewards cannot be."""
        with self._file.writing(is_durable=True):
            query = "UPDATE rewards SET step = NULL WHERE step > ? AND is_forgotten = 0"
            self._db.execute(query, (step,))
            return num_lost(self._db, step)

    def forget(self, *, settled: int, trained: int, before: float) -> bool:
        """Forget what nobody can ask for again; return whether there may be more of it."""
        with self._file.writing():
            steps = {"settled": settled, "trained": trained}
            return forget(self._db, **steps, before=before, limit=AT_ONCE) >= AT_ONCE

    def forgotten(self) -> dict[str, int]:
        """Return how many experiences and runs were forgotten."""
        with self._file.reading():
            counts = forgotten(self._db)
        return {name: counts[name] for name in ("experiences", "runs")}

    def drop(self, *, before: float, spared: Sequence[int] = ()) -> list[int]:
        """Forget the exchanges without a reward of runs that were silent since; return the runs."""
        is_unresponsive = "state = 'open' AND last_call < ?"
        query = f"SELECT number FROM runs WHERE {is_unresponsive}"
        with self._file.reading():
            silent = {number for (number,) in self._rows(query, before)}.difference(spared)
        if not silent:
            return []
        dropped: list[int] = []
        own = "SELECT agent FROM rewards WHERE run = exchanges.run"
        with self._file.writing():
            for number in sorted(silent):  # some were rewarded or called since they were found
                update = f"UPDATE runs SET state = 'dropped' WHERE number = ? AND {is_unresponsive}"
                if self._db.execute(update, (number, before)).rowcount:
                    self._db.execute(
                        f"DELETE FROM exchanges WHERE run = ? AND agent NOT IN ({own})", (number,)
                    )
                    dropped.append(number)
        return dropped

    def counts(self) -> dict[str, int]:
        """Return how many there are of each state, and were before they were forgotten."""
        queries = {
            "open": "runs WHERE state = 'open'",
            "rewarded": f"rewards WHERE {_IS_UNCOMMITTED}",
            "due": f"rewards WHERE {_IS_DUE}",
            "taken": "rewards WHERE step IS NOT NULL",
            "set_aside": f"rewards WHERE num_failures >= {MAX_FAILURES}",
            "dropped": "runs WHERE state = 'dropped' "
            "AND NOT EXISTS (SELECT 1 FROM rewards WHERE run = runs.number)",
        }
        with self._file.reading():
            gone = forgotten(self._db)
            return {
                name: self._rows(f"SELECT COUNT(*) FROM {query}")[0][0] + gone.get(name, 0)
                for name, query in queries.items()
            }

    def close(self) -> None:
        """Free the file; safe to call twice."""
        self._file.close()

    # What follows is for use inside of reading() or writing().

    def _damaged(self, rewards: Sequence[int]) -> dict[int, str]:
        found = {number: damage_of(self._db, number) for number in rewards}
        return {number: what for number, what in found.items() if what}

    def _begun(self, name: str, *, owner: str, task: str, is_named: bool) -> tuple[int, str, str]:
        cursor = self._db.execute(
            "INSERT INTO runs (name, owner, is_named, task, state, last_call) "
            "VALUES (?, ?, ?, ?, 'open', ?)",
            (name, owner, is_named, task, time.time()),
        )
        assert cursor.lastrowid is not None, "it was inserted"
        return cursor.lastrowid, name, "open"

    def _served(self, row: tuple[int, str, str]) -> ServedRun:
        number, name, state = row
        agents = "SELECT agent FROM rewards WHERE run = ? AND agent != ''"
        calls = "SELECT COALESCE(MAX(request) + 1, 0) FROM exchanges WHERE run = ?"
        return ServedRun(
            number=number,
            name=name,
            state=state,  # type: ignore[arg-type]  # as the schema has it
            rewarded_agents=frozenset(one for (one,) in self._rows(agents, number)),
            num_calls=self._rows(calls, number)[0][0],
        )

    def _check_open(self, number: int, agent: str) -> None:
        row = self._found("number = ?", number)
        assert row is not None, "numbers come from run() and unnamed()"
        is_rewarded = "SELECT 1 FROM rewards WHERE run = ? AND agent = ?"
        if row[2] != "open" or self._rows(is_rewarded, number, agent):
            raise RunOverError(self._served(row))

    def _note_call(self, number: int) -> None:
        self._db.execute("UPDATE runs SET last_call = ? WHERE number = ?", (time.time(), number))

    def _found(
        self, condition: str, value: str | int, *, order: str = "number DESC"
    ) -> tuple[int, str, str] | None:
        query = f"SELECT number, name, state FROM runs WHERE {condition} ORDER BY {order} LIMIT 1"
        row: tuple[int, str, str] | None = self._db.execute(query, (value,)).fetchone()
        return row

    def _rows(self, query: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]
        return self._db.execute(query, values).fetchall()
