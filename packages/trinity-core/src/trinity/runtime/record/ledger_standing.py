"""How a run stands by its ledger: who is there, what waits, what runs longest, how old it was."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from trinity.buffer.ledger.presence import LEASE_S, Presence
from trinity.errors import DataError

if TYPE_CHECKING:
    from trinity.buffer.ledger.database import Database, Rows
    from trinity.buffer.ledger.presence import Side

_AGES = """
SELECT AVG(train_step - 1 - version), MAX(train_step - 1 - version) FROM experience
WHERE train_place IS NOT NULL AND train_step = ?
"""  # as the view ages, which anybody can have replaced
_SLOWEST = """
SELECT task.batch, task.place, task.began FROM task JOIN explorer ON explorer.name = task.owner
WHERE task.state = 'running' AND explorer.beat > ? ORDER BY task.began, task.id LIMIT 5
"""  # of an explorer that is dead nothing runs


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerStanding:
    """What a ledger tells."""

    name: str
    sides: list[Side]  # the trainer first; empty where the run is one
    num_waiting: int  # experiences
    num_dropped: int
    trained: int  # the last optimizer step
    ages: tuple[float, float]  # of that step, the mean and the most
    oldest_waiting: int | None  # version of the weights that made what waits, the lowest
    slowest: list[tuple[str, float]]  # running tasks, and since how many seconds
    broken: int  # packets


def read_ledger(database: Database, *, name: str) -> LedgerStanding:
    """Return what a ledger tells.

    Raises:
        DataError: it cannot be read, or holds what no run writes: anybody can have made it.
    """
    presence = Presence(database, is_gone=lambda side: False)
    try:
        trainer = presence.trainer()
        sides = [*([trainer] if trainer else []), *presence.explorers()]
        told = database.read(_told)
        for side in sides:
            _check(side)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DataError(
            f"the ledger {name} is left out, for it is not as a run writes one: "
            f"{str(error).rstrip('.')}."
        ) from error
    return LedgerStanding(name=name, sides=sides, **told)


def _told(rows: Rows) -> dict[str, Any]:
    ((num_waiting, oldest),) = rows.all(
        "SELECT COUNT(*), MIN(version) FROM experience WHERE train_step IS NULL"
    )
    ((trained,),) = rows.all(
        "SELECT COALESCE(MAX(train_step), 0) FROM experience WHERE train_place IS NOT NULL"
    )
    ((mean, most),) = rows.all(_AGES, trained)
    ((num_dropped,),) = rows.all(
        "SELECT COUNT(*) FROM experience WHERE train_step IS NOT NULL AND dropped IS NOT NULL"
    )
    ((broken,),) = rows.all("SELECT COUNT(*) FROM packet WHERE outcome = 'broken'")
    return {
        "num_waiting": num_waiting,
        "oldest_waiting": None if oldest is None else _whole(oldest, of="experience.version"),
        "trained": _whole(trained, of="experience.train_step"),
        "ages": (_number(mean or 0.0, of="the mean age"), _number(most or 0.0, of="the most")),
        "num_dropped": num_dropped,
        "broken": broken,
        "slowest": [
            (f"{batch}/{place}", max(0.0, time.time() - _number(began, of="task.began")))
            for batch, place, began in rows.all(_SLOWEST, time.time() - LEASE_S)
        ],
    }


def _check(side: Side) -> None:
    """Hold that a side is made of what it is declared to be."""
    for name, value in asdict(side).items():
        if name in {"since", "beat"}:
            _number(value, of=name)
        elif name in {"pid", "version", "step"}:
            _whole(value, of=name)
        elif not isinstance(value, str):
            raise TypeError(f"{name} of a side is {value!r:.80}, no text")
        else:
            value.encode()


def _whole(value: object, *, of: str) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{of} is {value!r:.80}, no whole number")
    return value


def _number(value: object, *, of: str) -> float:
    if not isinstance(value, (int, float, Decimal)):
        raise TypeError(f"{of} is {value!r:.80}, no number")
    return float(value)
