"""The packets of a ledger as a reader gets them: whole, or refused.

Each packet has the SHA-256 of its bytes beside them. The ids in it must be those of its rows, too:
so a bit that flipped, or two packets that were swapped, are found before anything is trained.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.common.experience import Experience
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

BROKEN = "broken"  # the outcome of a packet that is left out
_SHOWN = 3  # ids in a message


@dataclass(frozen=True, slots=True)
class Claimed:
    """An experience that a step is to train."""

    id: int
    packet: int
    place: int  # in its packet
    uid: str


@dataclass(frozen=True, slots=True)
class StoredPacket:
    """A packet as it lies in the database."""

    body: bytes | None  # None: it was deleted
    digest: bytes | None  # None: of a version that wrote none
    outcome: str


def digest_of(body: bytes) -> bytes:
    """Return what a packet is known by."""
    return hashlib.sha256(body).digest()


def experiences_in(
    packet: StoredPacket | None, rows: Sequence[Claimed], *, is_unchecked: bool
) -> list[Experience]:
    """Return the experiences of rows of one packet, in the order of the rows.

    Args:
        packet: it; None: the database has none.
        rows: of this packet.
        is_unchecked: whether it was written before packets had digests.

    Raises:
        DataError: it is not what was written; the message says what is wrong, and not where.
    """
    if packet is None:
        raise DataError("the row is missing.")
    if packet.body is None:
        raise DataError("its contents were deleted when they were trained.")
    if packet.digest is None and not is_unchecked:
        raise DataError("it has no SHA-256 (an earlier version of Trinity wrote it?).")
    if packet.digest is not None and digest_of(packet.body) != packet.digest:
        raise DataError("its bytes are not those that were written (their SHA-256 differs).")
    found = Experience.deserialize_many(packet.body)
    return [_at(found, row) for row in rows]


def damage_text(
    *, ledger: str, shell: str, packet: int, of: str, rows: Sequence[Claimed], why: str
) -> str:
    """Return what a person is told of a packet that is not what was written.

    Args:
        ledger: its name.
        shell: the command that takes statements for it.
        packet: its number.
        of: the run, task and explorer that it is of, as far as the rest of the ledger tells.
        rows: that a step was to train of it.
        why: what is wrong.
    """
    uids = ", ".join(row.uid for row in rows[:_SHOWN]) + (", ..." if rows[_SHOWN:] else "")
    return (
        f"packet {packet} of the ledger {ledger} (table packet, row id {packet}, {of}) is damaged: "
        f"{why} {len(rows)} experiences lie in it ({uids}); none of them was trained. Restore the "
        f'database from a copy; or train without them: {shell} "UPDATE packet SET outcome = '
        f"'{BROKEN}' WHERE id = {packet}\". Then run the same command."
    )


def _at(found: Sequence[Experience], row: Claimed) -> Experience:
    uid = found[row.place].eid.uid if 0 <= row.place < len(found) else "nothing"
    if row.uid != uid and row.uid.rpartition("#")[0] != uid:  # #2: a copy that an operator made
        raise DataError(
            f"it has {uid} at place {row.place}, and row {row.id} of table experience says "
            f"{row.uid}."
        )
    return found[row.place]
