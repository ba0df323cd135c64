"""Mails in a SQLite file: written once, then searched by their words.

emails(id, message_id, subject, from_address, date, body, file_name)
recipients(email_id, recipient_address, recipient_type)    to, cc or bcc
emails_fts: the words of subject and body
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError

from trinity_compat_rft.emails.records import Email, SearchResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "DATABASE",
    "mailbox_path",
    "missing_mails",
    "read_email_tool",
    "search_emails_tool",
    "write_mailbox",
]

DATABASE = "DEFAULT_EMAIL_DB_PATH"  # environment variable with the file's path
MOST_RESULTS = 10
LONGEST_BODY, MOST_RECIPIENTS = 5000, 30  # a mail beyond them is left out
KINDS = ("to", "cc", "bcc")
_SCHEMA = """
CREATE TABLE emails (
    id INTEGER PRIMARY KEY, message_id TEXT UNIQUE, subject TEXT, from_address TEXT,
    date TEXT, body TEXT, file_name TEXT
);
CREATE TABLE recipients (
    email_id INTEGER REFERENCES emails(id), recipient_address TEXT, recipient_type TEXT
);
"""
_INDEXES = """
CREATE INDEX recipients_by_address ON recipients(recipient_address, email_id);
CREATE INDEX recipients_by_email ON recipients(email_id);
CREATE VIRTUAL TABLE emails_fts USING fts5(subject, body, content='emails', content_rowid='id');
INSERT INTO emails_fts(emails_fts) VALUES ('rebuild');
"""
_IS_RECIPIENT = (
    "EXISTS (SELECT 1 FROM recipients r WHERE r.email_id = e.id AND r.recipient_address = ?)"
)


def write_mailbox(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write a database of mails; return how many it has.

    A mail with more than 5000 characters or 30 recipients is left out, and so is one with the name,
    or with sender, subject and body, of an earlier one.

    Args:
        path: of the file, which is not there yet.
        rows: each with ``message_id``, ``subject``, ``from``, ``to``, ``cc``, ``bcc`` (lists),
            ``date`` (a datetime), ``body`` and ``file_name`` (Any: a data set's cells).
    """
    seen: set[Any] = set()
    number = 0
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(_SCHEMA)
        for row in rows:
            keys = {row["message_id"], (row["subject"], row["body"], row["from"])}
            sent = [(str(a), kind) for kind in KINDS for a in row.get(kind) or () if a]
            is_long = len(row["body"] or "") > LONGEST_BODY or len(sent) > MOST_RECIPIENTS
            if not is_long and not keys & seen:
                seen |= keys
                _add(database, row, sent=sent)
                number += 1
        database.executescript(_INDEXES)
    return number


def _add(database: Any, row: Mapping[str, Any], *, sent: list[tuple[str, str]]) -> None:
    date = row["date"].strftime("%Y-%m-%d %H:%M:%S")
    cells = [row[name] for name in ("message_id", "subject", "from")]
    number = database.execute(
        "INSERT INTO emails (message_id, subject, from_address, date, body, file_name) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (*cells, date, row["body"], row.get("file_name")),
    ).lastrowid
    database.executemany(
        "INSERT INTO recipients VALUES (?, ?, ?)", [(number, *recipient) for recipient in sent]
    )


def mailbox_path() -> Path:
    """Return the file that the environment names.

    Raises:
        ConfigError: there is none.
    """
    path = Path(os.environ.get(DATABASE) or "/nonexistent")
    if not path.is_file():
        raise ConfigError(
            f"the environment variable {DATABASE} names no file of mails. Make one by "
            f"'python -m trinity_compat_rft.emails.prepare FILE', and set {DATABASE}=FILE."
        )
    return path


def missing_mails() -> None:
    """Refuse where the environment names no file of mails.

    Raises:
        ConfigError: it names none.
    """
    mailbox_path()


def search_emails_tool(  # noqa: PLR0913, PLR0917 -- published
    inbox: str,
    keywords: list[str],
    from_addr: str | None = None,
    to_addr: str | None = None,
    sent_after: str | None = None,
    sent_before: str | None = None,
    max_results: int = MOST_RESULTS,
) -> list[SearchResult]:
    """Return the newest mails from or to an address that have all of the words.

    Args:
        inbox: the address.
        keywords: each stands in subject or body, as it is.
        from_addr: only those from it.
        to_addr: only those to it.
        sent_after: "YYYY-MM-DD", only those of this day or later.
        sent_before: only those of an earlier day.
        max_results: how many, 10 at most.

    Raises:
        ValueError: there are no keywords, or more than 10 mails are asked for.
        ConfigError: there is no database.
    """
    if not keywords:
        raise ValueError("there are no keywords")
    if max_results > MOST_RESULTS:
        raise ValueError(f"max_results is {max_results}; it may be {MOST_RESULTS} at most")
    words = " ".join('"{}"'.format(word.replace('"', '""')) for word in keywords)
    conditions: list[tuple[str, tuple[str, ...]]] = [
        ("emails_fts MATCH ?", (words,)),
        (f"(e.from_address = ? OR {_IS_RECIPIENT})", (inbox, inbox)),
    ]
    for condition, value in (
        ("e.from_address = ?", from_addr),
        (_IS_RECIPIENT, to_addr),
        ("e.date >= ?", sent_after and f"{sent_after} 00:00:00"),
        ("e.date < ?", sent_before and f"{sent_before} 00:00:00"),
    ):
        if value:
            conditions.append((condition, (value,)))
    found = _rows(
        "SELECT e.message_id, snippet(emails_fts, -1, '<b>', '</b>', ' ... ', 15) FROM emails_fts "
        f"JOIN emails e ON e.id = emails_fts.rowid WHERE {' AND '.join(c for c, _ in conditions)} "
        "ORDER BY e.date DESC LIMIT ?",
        *(value for _, values in conditions for value in values),
        max_results,
    )
    return [SearchResult(message_id=name, snippet=snippet) for name, snippet in found]


def read_email_tool(message_id: str) -> Email | None:
    """Return a mail; None: there is none of this name.

    Raises:
        ConfigError: there is no database.
    """
    names = ("id", "message_id", "date", "subject", "from_address", "body", "file_name")
    found = _rows(f"SELECT {', '.join(names)} FROM emails WHERE message_id = ?", message_id)
    if not found:
        return None
    number, *cells = found[0]
    sent = _rows(
        "SELECT recipient_type, recipient_address FROM recipients WHERE email_id = ?", number
    )
    addresses = {f"{kind}_addresses": [a for k, a in sent if k == kind] for kind in KINDS}
    return Email(**dict(zip(names[1:], cells, strict=True)), **addresses)


def _rows(query: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return what a query finds; any thread may ask, and nothing is ever written."""
    address = f"{mailbox_path().resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as database:
        return database.execute(query, values).fetchall()
