"""The SHA-256 of each stored reply and reward, by which a reader knows that the disk kept them.

That of a reward is made of those of its replies, too: one that is missing, or stands in another's
place, is found.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

# Which exchanges a reward is for: an agent's own, or those of all agents that have none.
OF_REWARD = """
run = :run AND (agent = :agent OR (:agent = '' AND agent NOT IN
    (SELECT agent FROM rewards WHERE run = :run AND agent != '')))
"""
# What the format before this one has not.
ADDED = """
ALTER TABLE exchanges ADD COLUMN digest BLOB;
ALTER TABLE rewards ADD COLUMN digest BLOB;
"""
_REWARD = """
SELECT run, name, task, agent, reward, metrics, rewards.digest
FROM rewards JOIN runs ON runs.number = run WHERE rewards.number = ?
"""
_OF_RUN = f"SELECT request, digest FROM exchanges WHERE {OF_REWARD} ORDER BY request"
_EXCHANGES = (
    f"SELECT request, agent, experiences, digest FROM exchanges WHERE {OF_REWARD} ORDER BY request"
)


def exchange_digest(run: int, request: int, agent: str, experiences: bytes) -> bytes:
    """Return what a stored reply is known by."""
    return hashlib.sha256(json.dumps([run, request, agent]).encode() + experiences).digest()


def seal_reward(db: sqlite3.Connection, number: int) -> None:
    """Note the digest of a reward, and by it which replies it is for."""
    run, name, task, agent, reward, metrics, _ = db.execute(_REWARD, (number,)).fetchone()
    replies = db.execute(_OF_RUN, {"run": run, "agent": agent}).fetchall()
    own = [run, name, task, agent, reward, metrics]
    db.execute("UPDATE rewards SET digest = ? WHERE number = ?", (_sealed(own, replies), number))


def seal_all(db: sqlite3.Connection) -> int:
    """Give digests to all that an earlier version stored; return how many replies that are."""
    db.create_function("exchange_digest", 4, exchange_digest, deterministic=True)
    count = db.execute(
        "UPDATE exchanges SET digest = exchange_digest(run, request, agent, experiences)"
    ).rowcount
    for (number,) in db.execute("SELECT number FROM rewards WHERE is_forgotten = 0").fetchall():
        seal_reward(db, number)
    return count


def damage_of(db: sqlite3.Connection, number: int) -> str:
    """Return what is not as it was stored of a reward and its replies; "": nothing."""
    found = db.execute(_REWARD, (number,)).fetchone()
    if found is None:
        return f"the run of reward {number} (table rewards) is missing from table runs"
    run, name, task, agent, reward, metrics, digest = found
    of = f"run {name!r}" + (f" of task {task!r}" if task else "")
    rows = db.execute(_EXCHANGES, {"run": run, "agent": agent}).fetchall()
    for request, caller, stored, own in rows:
        if not isinstance(stored, bytes) or own != exchange_digest(run, request, caller, stored):
            where = f"table exchanges, run {run}, request {request}"
            return f"reply {request} of {of} ({where}) is not what was stored"
    replies = [(request, own) for request, _, _, own in rows]
    if digest != _sealed([run, name, task, agent, reward, metrics], replies):
        where = f"table rewards, number {number}"
        return f"the reward of {of} ({where}), or which replies it is for, is not what was stored"
    return ""


def _sealed(own: list[object], replies: list[tuple[int, bytes]]) -> bytes:
    content = hashlib.sha256(json.dumps(own).encode())
    for request, digest in replies:
        content.update(json.dumps(request).encode() + digest)
    return content.digest()
