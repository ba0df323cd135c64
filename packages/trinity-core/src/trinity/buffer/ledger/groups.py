"""Groups of a ledger by their names, for who trains whole groups and says which.

A group is the experiences of one task, ``batch/task`` of their ids, in one packet or more; those
that a workflow keeps apart (``batch/task-word``) come and go with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from trinity.buffer.ledger.database import Rows

_ALL = 2**62  # rows
_BEYOND = (
    f"SELECT id FROM experience WHERE train_step IS NULL ORDER BY packet, place LIMIT {_ALL} "
    "OFFSET ?"
)
_OF_GROUP = """
SELECT experience.id, experience.packet, experience.place
FROM task JOIN packet ON packet.task = task.id JOIN experience ON experience.packet = packet.id
WHERE task.owner = ? AND task.batch = ? AND (task.place = ? OR task.place LIKE ?)
AND experience.train_step IS NULL
ORDER BY experience.packet, experience.place
"""
_WAITING = """
SELECT DISTINCT packet.id, task.batch, task.place
FROM experience JOIN packet ON packet.id = experience.packet JOIN task ON task.id = packet.task
WHERE experience.train_step IS NULL
"""


def rows_of_group(rows: Rows, name: str, *, owner: str) -> list[tuple[int, int, int]]:
    """Return id, packet and place of what waits of a group, in order."""
    batch, _, task = name.rpartition("/")
    return rows.all(_OF_GROUP, owner, batch, task, f"{task}-%")


def remove_other_groups(rows: Rows, names: Collection[str]) -> None:
    """Remove what waits of all groups but these."""
    for packet, batch, task in rows.all(_WAITING):
        if f"{batch}/{task.partition('-')[0]}" not in names:
            rows.do("DELETE FROM experience WHERE packet = ? AND train_step IS NULL", packet)
            _remove_empty(rows, [packet])


def remove_beyond(rows: Rows, num_waiting: int) -> None:
    """Remove what waits, but for the oldest ``num_waiting`` experiences."""
    ids = f"id IN ({_BEYOND})"
    packets = rows.all(f"SELECT DISTINCT packet FROM experience WHERE {ids}", num_waiting)
    rows.do(f"DELETE FROM experience WHERE {ids}", num_waiting)
    _remove_empty(rows, [packet for (packet,) in packets])


def _remove_empty(rows: Rows, packets: Sequence[int]) -> None:
    """Remove packets of which nothing is left, and tasks without packets."""
    for packet in packets:
        is_empty = "NOT EXISTS (SELECT 1 FROM experience WHERE experience.packet = packet.id)"
        removed = rows.all(f"DELETE FROM packet WHERE id = ? AND {is_empty} RETURNING task", packet)
        for (task,) in removed:
            rows.do(
                "DELETE FROM task WHERE id = ? AND NOT EXISTS "
                "(SELECT 1 FROM packet WHERE packet.task = task.id)",
                task,
            )
