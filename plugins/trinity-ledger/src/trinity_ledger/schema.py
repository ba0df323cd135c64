"""The tables of a ledger, and the views that people may query.

    task  1 --- n  packet  1 --- n  experience       one task: one group of runs, a packet or more

``packet.digest`` is the SHA-256 of its body. ``experience.train_step`` is the optimizer step that
has it, ``train_place`` its place in that batch. A row with a step and no place was dropped then;
``dropped`` says why. ``step_record`` has a row for each step that a checkpoint knows, with a
running digest (``seal.py``). The views stay as they are from version to version:

* ``steps``: of each optimizer step how many experiences, tokens, the mean reward, the versions;
* ``tasks``: of each task who explored it, how many experiences it gave and how many are trained;
* ``untrained``: the experiences that wait, the oldest first;
* ``ages``: of each optimizer step how old its experiences were, in steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trinity_ledger.database import ResultRows

SCHEMA = 1  # version of all below
UNCHECKED = "unchecked"  # in table run: the last packet that was written without a digest
TABLES = frozenset({"run", "explorer", "task", "packet", "experience", "weights"})

_STATEMENTS = """
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS explorer (
    name TEXT PRIMARY KEY, token TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
    since FLOAT NOT NULL, beat FLOAT NOT NULL, version INTEGER NOT NULL, step INTEGER NOT NULL,
    state TEXT NOT NULL, waits_for TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS task (
    id ID, owner TEXT NOT NULL, batch TEXT NOT NULL, place TEXT NOT NULL, state TEXT NOT NULL,
    token TEXT NOT NULL, outcome TEXT NOT NULL, began FLOAT NOT NULL, ended FLOAT,
    UNIQUE (owner, batch, place)
);
CREATE INDEX IF NOT EXISTS running ON task (owner) WHERE state = 'running';
CREATE TABLE IF NOT EXISTS packet (
    id ID, task BIGINT NOT NULL, outcome TEXT NOT NULL, body BYTES, digest BYTES
);
CREATE INDEX IF NOT EXISTS packets_of_tasks ON packet (task);
CREATE TABLE IF NOT EXISTS experience (
    id ID, packet BIGINT NOT NULL, place INTEGER NOT NULL, uid TEXT NOT NULL UNIQUE,
    run INTEGER NOT NULL, step INTEGER NOT NULL, version INTEGER NOT NULL, reward FLOAT,
    num_tokens INTEGER NOT NULL, train_step INTEGER, train_place INTEGER, dropped TEXT
);
CREATE INDEX IF NOT EXISTS waiting ON experience (packet, place) WHERE train_step IS NULL;
CREATE INDEX IF NOT EXISTS trained ON experience (train_step) WHERE train_step IS NOT NULL;
CREATE INDEX IF NOT EXISTS experiences_of_packets ON experience (packet);
CREATE TABLE IF NOT EXISTS weights (
    version INTEGER PRIMARY KEY, path TEXT NOT NULL, digest TEXT NOT NULL, at FLOAT NOT NULL
);
CREATE TABLE IF NOT EXISTS step_record (
    step INTEGER PRIMARY KEY, experiences INTEGER NOT NULL, tokens BIGINT NOT NULL,
    mean_reward FLOAT, oldest_version INTEGER, newest_version INTEGER, digest TEXT NOT NULL
);
CREATE VIEW IF NOT EXISTS steps AS
    SELECT train_step, COUNT(*) AS experiences, SUM(num_tokens) AS tokens,
        AVG(reward) AS mean_reward, MIN(version) AS oldest_version, MAX(version) AS newest_version
    FROM experience WHERE train_place IS NOT NULL GROUP BY train_step;
CREATE VIEW IF NOT EXISTS tasks AS
    SELECT task.owner, task.batch, task.place, task.state, task.outcome, task.began, task.ended,
        COUNT(experience.id) AS experiences, COUNT(experience.train_place) AS trained,
        AVG(experience.reward) AS mean_reward
    FROM task LEFT JOIN packet ON packet.task = task.id
        LEFT JOIN experience ON experience.packet = packet.id
    GROUP BY task.id, task.owner, task.batch, task.place, task.state, task.outcome, task.began,
        task.ended;
CREATE VIEW IF NOT EXISTS untrained AS
    SELECT uid, version, reward, num_tokens FROM experience WHERE train_step IS NULL
    ORDER BY packet, place;
CREATE VIEW IF NOT EXISTS ages AS
    SELECT train_step, AVG(train_step - 1 - version) AS mean_age,
        MAX(train_step - 1 - version) AS max_age
    FROM experience WHERE train_place IS NOT NULL GROUP BY train_step;
"""


def refuse_foreign(rows: ResultRows, *, query: str, name: str) -> None:
    """Hold that a database is empty or a ledger, of this version or of another.

    Args:
        rows: of the database.
        query: tells its tables.
        name: of it, for the message.

    Raises:
        ConfigError: it holds something else.
    """
    tables = {table for (table,) in rows.all(query)}
    if not tables or tables >= TABLES:
        return
    if "run" not in tables or not rows.all("SELECT 1 FROM run WHERE key = 'schema'"):
        raise ConfigError(
            f"the database {name} is not a ledger: it has other tables "
            f"({', '.join(sorted(tables)[:3])}). Use an empty database or a new file: "
            f"buffer.trainer_input.experience_buffer.path."
        )


def statements(types: Mapping[str, str]) -> Iterator[str]:
    """Yield what makes the tables, one statement at a time.

    Args:
        types: what a database calls ``ID``, ``BYTES`` and ``FLOAT``.
    """
    for statement in _STATEMENTS.split(";")[:-1]:
        words = statement.replace("\n", " ").split(" ")
        yield " ".join(_typed(word, types) for word in words if word)


def add_digests(rows: ResultRows, types: Mapping[str, str]) -> None:
    """Give a ledger of an earlier version the column of digests, and note what has none."""
    rows.do(f"ALTER TABLE packet ADD COLUMN digest {types['BYTES']}")
    rows.do(
        "INSERT INTO run (key, value) SELECT ?, CAST(COALESCE(MAX(id), 0) AS TEXT) FROM packet "
        "WHERE TRUE ON CONFLICT (key) DO NOTHING",
        UNCHECKED,
    )


def _typed(word: str, types: Mapping[str, str]) -> str:
    bare = word.rstrip(",")
    return types.get(bare, bare) + word[len(bare) :]
