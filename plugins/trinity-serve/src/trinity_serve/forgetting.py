"""Forget what nobody can ask a store of runs for again, and count what went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity_serve.reply_digests import OF_REWARD

if TYPE_CHECKING:
    import sqlite3

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
