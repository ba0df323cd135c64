"""What a checkpoint notes of a ledger, and whether the ledger still holds it when a run goes on.

    train steps     a running digest of the ids that each step trained, in table step_record; the
                    checkpoint has the last one: a step that lost or gained a row is named
    what waits      its number, and the digest of what is trained next

Both are compared before anything is changed or trained.
"""

from __future__ import annotations

import hashlib
from itertools import groupby
from typing import TYPE_CHECKING, Any

from trinity.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trinity_ledger.database import ResultRows

Waiting = int | list[str] | None  # how many, the names of groups, or all that there was
OLDEST = 10_000  # rows whose digest is compared; of those after them their number is
COMPACTED = "compacted_step"  # in table run
_FACTS = """
SELECT COALESCE(SUM(num_tokens), 0), AVG(reward), MIN(version), MAX(version) FROM experience
WHERE train_step = ? AND train_place IS NOT NULL
"""
_TRAINED = """
SELECT train_step, uid FROM experience WHERE train_place IS NOT NULL AND train_step > ?
AND train_step <= ? ORDER BY train_step, train_place
"""
# What has no step, or a later one than the checkpoint's; each half by an index of its own.
_LEFT = """
SELECT * FROM (SELECT packet, place, uid FROM experience WHERE train_step IS NULL AND id <= ?
    ORDER BY packet, place LIMIT ?) AS untrained
UNION ALL SELECT packet, place, uid FROM experience WHERE train_step > ? AND id <= ?
"""
_COUNT = """
SELECT (SELECT COUNT(*) FROM experience WHERE train_step IS NULL AND id <= ?)
    + (SELECT COUNT(*) FROM experience WHERE train_step > ? AND id <= ?)
"""
_NEXT = f"""
SELECT experience.uid, experience.packet, experience.place, packet.digest FROM
    (SELECT * FROM ({_LEFT}) AS left_over ORDER BY packet, place LIMIT ?) AS experience
    LEFT JOIN packet ON packet.id = experience.packet
ORDER BY experience.packet, experience.place
"""
_OF_GROUP = """
SELECT experience.uid, experience.packet, experience.place, packet.digest
FROM task JOIN packet ON packet.task = task.id
    JOIN experience ON experience.packet = packet.id
WHERE task.batch = ? AND (task.place = ? OR task.place LIKE ?)
AND (train_step IS NULL OR train_step > ?) AND experience.id <= ?
ORDER BY experience.packet, experience.place
"""


def seal(rows: ResultRows, *, step: int, waiting: Waiting) -> dict[str, Any]:
    """Return what a checkpoint of this step notes of the ledger (Any: json)."""
    rows.without_writers()
    ((last,),) = rows.all("SELECT COALESCE(MAX(id), 0) FROM experience")
    found = rows.all("SELECT MAX(step) FROM step_record")
    for one, count, digest in _steps(rows, after=found[0][0] or 0, to=step):
        facts = rows.all(_FACTS, one)[0]
        rows.do("INSERT INTO step_record VALUES (?, ?, ?, ?, ?, ?, ?)", one, count, *facts, digest)
    return {
        "steps": _record_at(rows, step)[1],
        "last": last,
        "waiting": list(_waiting(rows, waiting, step=step, last=last)),
    }


def is_sealed(rows: ResultRows, step: int) -> bool:
    """Return whether a checkpoint of this step, or of a later one, noted the ledger."""
    return bool(rows.all("SELECT 1 FROM step_record WHERE step >= ? LIMIT 1", step))


def check_seal(
    rows: ResultRows, noted: dict[str, Any], *, step: int, waiting: Waiting, name: str
) -> None:
    """Hold that the ledger has what it had at a checkpoint; nothing is changed.

    Raises:
        CheckpointError: it has not; the message says of which step, or how many experiences.
    """
    for one, count, digest in _steps(rows, after=compacted_to(rows), to=step):
        then = rows.all("SELECT experiences, digest FROM step_record WHERE step = ?", one)
        if not then or then[0] != (count, digest):
            was = then[0][0] if then else 0
            what = f"train step {one} has {count} experiences, and it trained {was}"
            if count == was:
                what = f"the {count} experiences of train step {one} are others or reordered"
            raise CheckpointError(_text(name, what, step=step))
    if _record_at(rows, step)[1] != noted["steps"]:
        what = f"its records of the train steps up to {step} are others"
        raise CheckpointError(_text(name, what, step=step))
    count, digest = _waiting(rows, waiting, step=step, last=noted["last"])
    then_count, then_digest = noted["waiting"]
    if count != then_count:
        what = f"{count} of the {then_count} experiences wait that waited then"
        raise CheckpointError(_text(name, what, step=step))
    if digest != then_digest:
        what = f"of the {count} experiences that wait, some are others, or in another order"
        raise CheckpointError(_text(name, what, step=step))


def compacted_to(rows: ResultRows) -> int:
    """Return the last step whose rows were deleted; 0: none."""
    found = rows.all("SELECT value FROM run WHERE key = ?", COMPACTED)
    return int(found[0][0]) if found else 0


def _text(name: str, what: str, *, step: int) -> str:
    return (
        f"the ledger {name} is not that of the checkpoint of train step {step}: {what}. Somebody "
        f"changed it, or its disk did. Nothing was trained or changed. Restore the database from a "
        f"copy of that time; or rename the checkpoints after which it differs, to go on from one "
        f"before them. To train its model in a new run, set another name and another database, and "
        f"set model.model_path to the checkpoint's actor/huggingface. If it has adapters of "
        f"several agents, set each path of model.lora_configs to a folder in actor/adapter instead."
    )


def _record_at(rows: ResultRows, step: int) -> tuple[int, str]:
    found = rows.all(
        "SELECT step, digest FROM step_record WHERE step <= ? ORDER BY step DESC LIMIT 1", step
    )
    return found[0] if found else (0, "")


def _steps(rows: ResultRows, *, after: int, to: int) -> Iterator[tuple[int, int, str]]:
    """Yield each step after one with how many rows it trained, and the running digest."""
    digest = _record_at(rows, after)[1]
    trained = {
        step: [uid for _, uid in own]
        for step, own in groupby(rows.all(_TRAINED, after, to), key=lambda row: row[0])
    }
    noted = rows.all("SELECT step FROM step_record WHERE step > ? AND step <= ?", after, to)
    for step in sorted({*trained, *(one for (one,) in noted)}):
        uids = trained.get(step, [])
        digest = hashlib.sha256("\n".join([digest, str(step), *uids]).encode()).hexdigest()
        yield step, len(uids), digest


def _waiting(rows: ResultRows, waiting: Waiting, *, step: int, last: int) -> tuple[int, str]:
    """Return how many experiences waited, and the digest of the oldest of them."""
    if isinstance(waiting, list):
        found = [row for name in waiting for row in _of_group(rows, name, step=step, last=last)]
        return len(found), _digest(found)
    ((count,),) = rows.all(_COUNT, last, step, last)
    count = count if waiting is None else min(count, waiting)
    most = min(count, OLDEST)
    return count, _digest(rows.all(_NEXT, last, most, step, last, most))


def _of_group(rows: ResultRows, name: str, *, step: int, last: int) -> list[tuple[Any, ...]]:
    batch, _, task = name.rpartition("/")
    return rows.all(_OF_GROUP, batch, task, f"{task}-%", step, last)


def _digest(found: Sequence[tuple[Any, ...]]) -> str:
    content = hashlib.sha256()
    for uid, packet, place, digest in found:
        content.update(f"{uid} {packet} {place} {bytes(digest or b'').hex()}\n".encode())
    return content.hexdigest()
