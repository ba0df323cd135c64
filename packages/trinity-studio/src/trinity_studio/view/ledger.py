"""The ledger of a run, in a file or on a server; nothing in it is changed."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from trinity.common.experience import Experience
from trinity.errors import ConfigError, DataError
from trinity.extend.known import how_to_get
from trinity_ledger.sqlite_file import Bounds

from trinity_studio.view.sqlite_file import opened, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from trinity_ledger.address import Address

__all__ = [
    "LedgerPage",
    "UnreadLedger",
    "address_of",
    "ledger_of",
    "read_experiences",
    "read_ledger",
    "unasked",
]

_PATH = "buffer.trainer_input.experience_buffer.path"
_STEPS = """
SELECT train_step, COUNT(*), SUM(num_tokens), AVG(reward), MIN(version), MAX(version),
    AVG(train_step - 1 - version)
FROM experience WHERE train_place IS NOT NULL AND train_step >
    (SELECT MAX(train_step) FROM experience WHERE train_step IS NOT NULL) - ?
GROUP BY train_step ORDER BY train_step DESC
"""  # as the views steps and ages, of the last ones alone: those read the whole table
_TASKS = """
SELECT last.batch, last.place, last.state, last.outcome, COUNT(experience.id),
    COUNT(experience.train_place), AVG(experience.reward)
FROM (SELECT id, batch, place, state, outcome FROM task ORDER BY id DESC LIMIT ?) AS last
    LEFT JOIN packet ON packet.task = last.id LEFT JOIN experience ON experience.packet = packet.id
GROUP BY last.id, last.batch, last.place, last.state, last.outcome ORDER BY last.id DESC
"""  # as the view tasks
_COUNTS = "SELECT COUNT(*), COUNT(train_place), COUNT(dropped) FROM experience"
_ROWS = """
SELECT packet, place, uid, version, reward, num_tokens, train_step, dropped FROM experience
{where} ORDER BY id DESC LIMIT ? OFFSET ?
"""
_WHERE = {  # by what is asked for
    "all": "",
    "waiting": "WHERE train_step IS NULL",
    "step": "WHERE train_step = ?",
}
_MOST = 60
_ODD = (TypeError, ValueError, LookupError, OverflowError, RecursionError)  # of rows of others

Rows = list[tuple[Any, ...]]  # Any: as the columns are


@dataclass(kw_only=True)
class LedgerPage:
    """What a page shows of a ledger.

    Attributes:
        name: of the file or the database, without a password.
        problem: why it cannot be read; empty: it can.
        counts: experiences, those that were trained, those that were dropped.
        steps: the last optimizer steps.
        tasks: the last tasks.
        experiences: columns of the table by name, and ``said``, the experience; None: its contents
            were deleted, or cannot be read. ``damaged`` names a packet that is not as written.
    """

    name: str
    problem: str = ""
    counts: tuple[int, int, int] = (0, 0, 0)
    steps: Rows = field(default_factory=list)
    tasks: Rows = field(default_factory=list)
    experiences: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class UnreadLedger:
    """Stands for the address of a ledger where trinity-ledger, which reads it, is not installed."""

    file: Path
    name: str = "the ledger of this run"

    def hidden(self, text: str) -> str:
        """Return the text: no address is in it."""
        return text


class _NoReaderError(ConfigError):
    def __init__(self) -> None:
        super().__init__(f"what reads ledgers is not installed. {how_to_get('trinity-ledger')}")


def address_of(path: str) -> Address:
    """Return which database a path names.

    Raises:
        ConfigError: it names none, or what reads ledgers is not installed.
    """
    try:
        from trinity_ledger.address import address_of as found
    except ModuleNotFoundError as error:
        raise _NoReaderError from error
    return found(path)


def ledger_of(directory: Path, settings: Mapping[str, Any]) -> Address | UnreadLedger | None:
    """Return where a run's ledger is; None: it has none, or its file is not there.

    Args:
        directory: of the run.
        settings: of its configuration by path (Any: yaml).
    """
    own = directory / "buffer" / "ledger.db"
    is_sql = settings.get(_PATH.replace(".path", ".storage_type")) == "sql"
    named = settings.get(_PATH) if is_sql else None
    try:
        if own.is_file():
            return address_of(str(own))
        if not named:
            return None
        address = address_of(str(named))
        return address if address.file is None or address.file.is_file() else None
    except _NoReaderError:
        return UnreadLedger(file=own)
    except (ConfigError, OSError):  # a name that is too long
        return None


def unasked(address: Address) -> LedgerPage:
    """Return what is shown of a server that only a run directory names."""
    said = (
        "is on a server that this run directory names, and a server is told who you are: it is "
        "asked where you say so. If you know it: trinity view --databases RUN_DIR (or trinity "
        "studio --databases), or trinity view --url and its address."
    )
    return LedgerPage(name=address.name, problem=f"{address.name} {said}")


def read_ledger(address: Address) -> LedgerPage:
    """Return what a ledger says now."""
    page = LedgerPage(name=address.name)
    with _noting(address, page), _asking(address) as ask:
        (page.counts,) = ask(_COUNTS)
        page.steps = ask(_STEPS, _MOST)
        page.tasks = ask(_TASKS, _MOST)
    return page


def read_experiences(address: Address, *, step: str, page: int, per_page: int) -> LedgerPage:
    """Return the newest experiences of a ledger with what they say.

    Args:
        address: of it.
        step: of which optimizer step; "waiting": those of none; empty: all.
        page: from 0.
        per_page: how many.
    """
    shown = LedgerPage(name=address.name)
    what = "step" if step.isdecimal() else "waiting" if step == "waiting" else "all"
    with _noting(address, shown), _asking(address) as ask:
        values = [int(step)] if what == "step" else []
        rows = ask(_ROWS.format(where=_WHERE[what]), *values, per_page, page * per_page)
        packets = {row[0] for row in rows}
        bodies = {packet: _body(ask, packet) for packet in packets}
        changed = {packet for packet in packets if _has_changed(ask, packet)}
        names = ("uid", "version", "reward", "num_tokens", "train_step", "dropped")
        shown.experiences = [
            {
                **dict(zip(names, row, strict=True)),
                "said": None if packet in changed else _at(bodies[packet], place),
                "damaged": f"packet {packet}" if packet in changed else "",
            }
            for packet, place, *row in rows
        ]
    return shown


@contextmanager
def _asking(address: Address) -> Iterator[Callable[..., Rows]]:
    """Yield what answers queries.

    Raises:
        ConfigError: what reads such a database is not installed.
        DataError: its tables are computed, or hold too much.
    """
    try:
        from trinity_ledger.opening import open_database
        from trinity_ledger.schema import TABLES
    except ModuleNotFoundError as error:
        raise _NoReaderError from error
    if address.file is not None:
        with closing(opened(address.file, tables=TABLES)) as file:
            bounds = Bounds(name=address.name)
            yield lambda query, *values: _plain(bounds.fetched(file.execute(query, values)))
        return
    database = open_database(address.url, max_retries=0, is_read_only=True)
    with closing(database):
        yield lambda query, *values: _plain(database.read(lambda r: r.all(query, *values)))


@contextmanager
def _noting(address: Address, page: LedgerPage) -> Iterator[None]:
    """Make what goes wrong inside the page's problem."""
    try:
        yield
    except (sqlite3.Error, ConfigError, DataError, *_ODD) as error:
        text = address.hidden(told(error))
        page.problem = f"{page.name} cannot be read as a ledger: {text}"


def _plain(rows: Rows) -> Rows:
    """Return rows whose numbers are Python's own; a server gives some as decimals."""
    return [tuple(float(one) if isinstance(one, Decimal) else one for one in row) for row in rows]


def _body(ask: Callable[..., Rows], packet: int) -> list[Experience]:
    """Return the experiences of a packet; none: its contents are gone, or damaged."""
    found = ask("SELECT body FROM packet WHERE id = ?", packet)
    if not found or not isinstance(found[0][0], (bytes, memoryview)):
        return []
    try:
        return Experience.deserialize_many(bytes(found[0][0]))
    except (DataError, *_ODD):
        return []


def _has_changed(ask: Callable[..., Rows], packet: int) -> bool:
    """Return whether a packet is not what was written; one without a digest is believed."""
    try:
        found = ask("SELECT body, digest FROM packet WHERE id = ?", packet)
    except (sqlite3.Error, DataError):  # a ledger of a version that wrote none
        return False
    if not found or any(not isinstance(one, (bytes, memoryview)) for one in found[0]):
        return False
    body, digest = map(bytes, found[0])
    return len(body) > 0 and hashlib.sha256(body).digest() != digest


def _at(experiences: list[Experience], place: object) -> Experience | None:
    if not isinstance(place, int) or not 0 <= place < len(experiences):
        return None
    return experiences[place]
