"""How experiences get into a ledger: a packet for the neighbours of one task, a row for each."""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.buffer.ledger.database import Rows
    from trinity.common.experience import Experience

_TASK = """
INSERT INTO task (owner, batch, place, state, token, outcome, began, ended)
VALUES (?, ?, ?, 'done', '', '', ?, ?)
ON CONFLICT (owner, batch, place) DO UPDATE SET state = 'done', outcome = '', ended = excluded.ended
RETURNING id
"""


def write_packets(
    rows: Rows,
    packets: Sequence[tuple[tuple[str, str], Sequence[Experience], bytes]],
    uids: Sequence[str],
    *,
    owner: str,
) -> int:
    """Store packets, each with its key and its bytes; return how many experiences are new.

    Args:
        rows: of the transaction.
        packets: of :func:`packets_of`.
        uids: of all experiences, in their order.
        owner: who explored them.
    """
    now, start, num_new = time.time(), 0, 0
    for (batch, place), group, body in packets:
        ((task,),) = rows.all(_TASK, owner, batch, place, now, now)
        ((packet,),) = rows.all(
            "INSERT INTO packet (task, outcome, body) VALUES (?, '', ?) RETURNING id",
            task,
            body,
        )
        own = uids[start : start + len(group)]
        count = rows.insert_experiences(
            [
                (
                    packet,
                    number,
                    uid,
                    one.eid.run,
                    one.eid.step,
                    int(one.info.get("model_version") or 0),
                    None if one.reward is None else float(one.reward),
                    int(one.tokens.shape[0]),
                )
                for number, (one, uid) in enumerate(zip(group, own, strict=True))
            ]
        )
        if not count:
            rows.do("DELETE FROM packet WHERE id = ?", packet)
        start, num_new = start + len(group), num_new + count
    return num_new


def packets_of(
    experiences: Sequence[Experience],
) -> list[tuple[tuple[str, str], list[Experience]]]:
    """Return neighbours of one task together, by the explore step and the task's place."""
    by_task = groupby(experiences, key=lambda one: (str(one.eid.batch), str(one.eid.task)))
    return [(key, list(group)) for key, group in by_task]


def uids_of(experiences: Sequence[Experience]) -> list[str]:
    """Return the ids; a copy that an operator made beside its original gets one of its own."""
    seen: dict[str, int] = {}
    uids = []
    for experience in experiences:
        uid = experience.eid.uid
        seen[uid] = number = seen.get(uid, 0) + 1
        uids.append(uid if number == 1 else f"{uid}#{number}")
    return uids
