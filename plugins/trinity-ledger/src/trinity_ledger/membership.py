"""Who works at a ledger: one trainer, any number of explorers, and which weights there are.

    explorer one --room?--> +--------+ <--beat, weights-- trainer
    explorer two --room?--> | ledger |
                            +--------+

Each side says every few seconds that it lives; a task of an explorer that no longer does holds no
place. Times are seconds since 1970 by the clock of who writes them.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from trinity.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity_ledger.database import Database, ResultRows

LEASE_S = 60.0  # without a word for so long, a side of another machine is taken for dead
FINISHED, WORKING = "finished", "working"
FINISHED_BEFORE = "finished before"  # and the other side asks for more since
_IN_FLIGHT = (
    "SELECT COUNT(DISTINCT packet) FROM experience WHERE train_step IS NULL OR train_step > ?"
)
_RUNNING = (
    "SELECT COUNT(*) FROM task JOIN explorer ON explorer.name = task.owner "
    "WHERE task.state = 'running' AND explorer.beat > ?"
)
_ISSUE = """
INSERT INTO task (owner, batch, place, state, token, outcome, began, ended)
VALUES (?, ?, ?, 'running', ?, '', ?, NULL)
ON CONFLICT (owner, batch, place) DO UPDATE SET state = 'running', token = excluded.token
WHERE task.state != 'done'
"""
_LOST = "UPDATE task SET state = 'lost' WHERE owner = ? AND state = 'running'"
_LOST_IN = "UPDATE task SET state = 'lost' WHERE owner = ? AND batch = ? AND state = 'running'"
_EXPLORER = """
INSERT INTO explorer (name, token, host, pid, since, beat, version, step, state, waits_for)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET token = excluded.token, host = excluded.host, pid = excluded.pid,
    since = excluded.since, beat = excluded.beat, version = excluded.version, step = excluded.step,
    state = excluded.state, waits_for = excluded.waits_for
"""
_COLUMNS = "name, token, host, pid, since, beat, version, step, state, waits_for"


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One side of a run, as it told of itself last."""

    name: str  # "trainer", or explorer.name
    token: str  # of this process; another one of the same name has another
    host: str
    pid: int
    since: float
    beat: float = 0.0
    version: int = 0  # of the weights that it has
    step: int = 0  # that it ended last
    state: str = WORKING  # or "stopped", "finished", "finished before"
    waits_for: str = ""  # "": it does not wait

    @property
    def is_finished(self) -> bool:
        """Return whether it did all that it was asked for."""
        return self.state == FINISHED

    @property
    def is_unresponsive(self) -> bool:
        """Return whether it did not say that it ended, and is taken for dead."""
        return self.state == WORKING and self.age_s() > LEASE_S

    def age_s(self) -> float:
        """Return how long ago it said that it lives."""
        return max(0.0, time.time() - self.beat)

    def where(self) -> str:
        """Return where it runs, and how old its last word is, for a person."""
        return f"process {self.pid} on {self.host}, last heard of {self.age_s():.0f} s ago"


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """The weights that explorers are to have."""

    version: int
    path: str
    digest: str


class Membership:
    """What the sides of a run tell each other.

    Args:
        database: of the ledger.
        is_gone: says whether a side's process ended; only its own machine knows.
    """

    def __init__(self, database: Database, *, is_gone: Callable[[Member], bool]) -> None:
        self._database = database
        self._is_gone = is_gone

    def enter(self, side: Member, *, is_trainer: bool, asks_for_more: bool = True) -> None:
        """Begin to work as this side.

        One that was finished goes on for more: that the other side finished says nothing then.

        Args:
            side: that this process is.
            is_trainer: whether it trains.
            asks_for_more: False: if it was finished, it was killed before anybody was told.

        Raises:
            ConfigError: another process does.
        """

        def work(rows: ResultRows) -> None:
            rows.alone()
            before = _trainer(rows) if is_trainer else _explorer(rows, side.name)
            is_asked_again = before is not None and before.token == side.token
            if before is not None and not is_asked_again and self._lives(before):
                raise ConfigError(_refusal(before, side, is_trainer=is_trainer))
            if not is_trainer:
                rows.do(_LOST, side.name)
            was_finished = before is not None and before.state in {FINISHED, FINISHED_BEFORE}
            if was_finished and asks_for_more:
                _let_go_on(rows, is_trainer=is_trainer)
            _write(rows, replace(side, beat=time.time()), is_trainer=is_trainer)

        self._database.write(work)

    def heartbeat(self, side: Member, *, is_trainer: bool) -> None:
        """Say that a side lives, and what it does.

        Raises:
            CheckpointError: it was taken for dead, and another process took its place.
        """

        def work(rows: ResultRows) -> None:
            now = _trainer(rows) if is_trainer else _explorer(rows, side.name)
            if now is not None and now.token != side.token:
                raise CheckpointError(_replaced(now))
            _write(rows, replace(side, beat=time.time()), is_trainer=is_trainer)

        self._database.write(work)

    def trainer(self) -> Member | None:
        """Return the trainer; None: none has begun."""
        return self._database.read(_trainer)

    def explorers(self) -> list[Member]:
        """Return all explorers by name, those that ended too."""
        query = f"SELECT {_COLUMNS} FROM explorer ORDER BY name"
        return [_side(row) for row in self._database.read(lambda rows: rows.all(query))]

    def issue(self, side: Member, *, batch: str, num_tasks: int, capacity: int, gives: int) -> bool:
        """Take places for an explore step, if there is room; return whether there was.

        Args:
            side: the explorer.
            batch: the id of the step.
            num_tasks: of the step.
            capacity: how many tasks all explorers may have running, or untrained.
            gives: how many experiences a task gives: where all that waits and runs is too little
                for what the trainer waits for, there is room.
        """

        def work(rows: ResultRows) -> bool:
            rows.alone()
            rows.do(_LOST_IN, side.name, batch)  # where this is asked again: the answer was lost
            in_flight, num_waiting, num_running = _in_flight(rows)
            is_full = in_flight + num_running + num_tasks > capacity
            is_starved = num_waiting + num_running * gives < _number(rows, "wanted")
            if is_full and not is_starved and in_flight + num_running:
                return False
            for place in range(num_tasks):
                rows.do(_ISSUE, side.name, batch, str(place), side.token, time.time())
            return True

        return self._database.write(work)

    def in_flight(self) -> tuple[int, int]:
        """Return how many tasks wait to be trained, or have no newer weights yet, and how many run.

        What a living explorer has running counts alone.
        """
        in_flight, _, num_running = self._database.read(_in_flight)
        return in_flight, num_running

    def step_ended(self, side: Member, *, batch: str) -> None:
        """Note that what is left of a step's tasks gave nothing."""
        self._database.write(
            lambda rows: rows.do(
                "UPDATE task SET state = 'dropped', outcome = 'nothing was kept of its runs', "
                "ended = ? WHERE owner = ? AND batch = ? AND state = 'running'",
                time.time(),
                side.name,
                batch,
            )
        )

    def want(self, count: int) -> None:
        """Say how many experiences the trainer waits for; what it claims is taken off."""
        self._database.write(lambda rows: note(rows, "wanted", str(count)))

    def publish(self, weights: Published) -> None:
        """Let explorers have these weights; versions above them are of steps that were undone."""

        def work(rows: ResultRows) -> None:
            rows.do("DELETE FROM weights WHERE version >= ?", weights.version)
            rows.do(
                "INSERT INTO weights (version, path, digest, at) VALUES (?, ?, ?, ?)",
                weights.version,
                weights.path,
                weights.digest,
                time.time(),
            )

        self._database.write(work)

    def published(self) -> Published | None:
        """Return the weights that explorers are to have; None: those of the model."""
        query = "SELECT version, path, digest FROM weights ORDER BY version DESC LIMIT 1"
        for version, path, digest in self._database.read(lambda rows: rows.all(query)):
            return Published(version=version, path=path, digest=digest)
        return None

    def close(self) -> None:
        """Let the connection go."""
        self._database.close()

    def _lives(self, side: Member) -> bool:
        return side.state == WORKING and not self._is_gone(side) and side.age_s() < LEASE_S


def note(rows: ResultRows, key: str, value: str) -> None:
    """Write down one thing about the run."""
    rows.do(
        "INSERT INTO run (key, value) VALUES (?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key,
        value,
    )


def want_more(rows: ResultRows, count: int) -> None:
    """Note that a trainer that said how many it waits for waits for more; below 0: for fewer."""
    found = rows.all("SELECT value FROM run WHERE key = 'wanted'")
    if found:
        note(rows, "wanted", str(max(0, int(found[0][0]) + count)))


def _in_flight(rows: ResultRows) -> tuple[int, int, int]:
    ((version,),) = rows.all("SELECT COALESCE(MAX(version), 0) FROM weights")
    ((num_packets,),) = rows.all(_IN_FLIGHT, version)
    ((num_waiting,),) = rows.all("SELECT COUNT(*) FROM experience WHERE train_step IS NULL")
    ((num_running,),) = rows.all(_RUNNING, time.time() - LEASE_S)
    return num_packets, num_waiting, num_running


def _number(rows: ResultRows, key: str) -> int:
    found = rows.all("SELECT value FROM run WHERE key = ?", key)
    return int(found[0][0]) if found else 0


def _write(rows: ResultRows, side: Member, *, is_trainer: bool) -> None:
    if is_trainer:
        note(rows, "trainer", json.dumps(asdict(side)))
        return
    values = asdict(side)
    rows.do(_EXPLORER, *(values[name.strip()] for name in _COLUMNS.split(",")))


def _trainer(rows: ResultRows) -> Member | None:
    found = rows.all("SELECT value FROM run WHERE key = 'trainer'")
    return Member(**json.loads(found[0][0])) if found else None


def _let_go_on(rows: ResultRows, *, is_trainer: bool) -> None:
    """Note of the other side, where it is finished, that it was so before more was asked for."""
    if is_trainer:
        rows.do("UPDATE explorer SET state = ? WHERE state = ?", FINISHED_BEFORE, FINISHED)
        return
    trainer = _trainer(rows)
    if trainer is not None and trainer.is_finished:
        _write(rows, replace(trainer, state=FINISHED_BEFORE), is_trainer=True)


def _explorer(rows: ResultRows, name: str) -> Member | None:
    found = rows.all(f"SELECT {_COLUMNS} FROM explorer WHERE name = ?", name)
    return _side(found[0]) if found else None


def _side(row: tuple[object, ...]) -> Member:
    names = [name.strip() for name in _COLUMNS.split(",")]
    return Member(**dict(zip(names, row, strict=True)))  # type: ignore[arg-type]  # as the columns are


def _refusal(before: Member, side: Member, *, is_trainer: bool) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(before.since))
    if is_trainer:
        remedy = "A ledger has one trainer. Stop that process, or use another database."
        return f"{before.where()}, has been training on this ledger since {since}. {remedy}"
    remedy = "Stop that process, or set explorer.name to another name."
    return (
        f"{before.where()}, has been explorer {side.name!r} of this ledger since {since}. {remedy}"
    )


def _replaced(now: Member) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now.since))
    return (
        f"this process sent no heartbeat for a while, and since {since} another process is "
        f"{now.name} of its ledger ({now.where()}). The other one continues; this one ends."
    )
