"""Where a ledger lies: what a path in a configuration, or on the command line, names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from trinity.errors import ConfigError

__all__ = ["Address", "address_of", "db_path"]

SETTING = "buffer.trainer_input.experience_buffer.path"
_SCHEME = re.compile(r"^([a-z0-9]+)(\+[a-z0-9_]+)?://", re.IGNORECASE)
_POSTGRES = {"postgresql", "postgres"}
_PASSWORD = re.compile(r"(://[^:/@]*):([^/]*|[^@]*)@")  # up to the last @ of the authority
_IN_OPTION = re.compile(r"([?&](?:ssl)?password=)([^&]*)", re.IGNORECASE)
_WORD = re.compile(r"\w{3,}")
_OPTION = re.compile(r"([?&](?:ssl)?password=)[^&]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a ledger lies: a file of SQLite, or a database of a PostgreSQL server."""

    file: Path | None  # of SQLite; None: PostgreSQL
    url: str = ""  # of PostgreSQL

    @property
    def name(self) -> str:
        """Return it for messages, without a password."""
        return str(self.file) if self.file is not None else _shown(self.url)

    def hidden(self, text: str) -> str:
        """Return what a driver says, without the password and without parts of one it misread.

        >>> address_of("postgresql://me:ab%zzcd@db/runs").hidden('invalid token: "ab%zzcd"')
        'invalid token: "***"'
        """
        secrets = [found[-1] for found in _PASSWORD.findall(self.url)]
        secrets += [found for _, found in _IN_OPTION.findall(self.url)]
        parts = {part for one in secrets for part in (one, unquote(one), *_WORD.findall(one))}
        for part in sorted(filter(None, parts), key=len, reverse=True):
            text = text.replace(part, "***")
        return text


def address_of(path: str) -> Address:
    """Return which database a path names.

    >>> address_of("sqlite:///run.db").file, address_of("sqlite:////data/run.db").file
    (PosixPath('run.db'), PosixPath('/data/run.db'))
    >>> address_of("run.db").file
    PosixPath('run.db')
    >>> address_of("postgresql+psycopg2://me:secret@db/runs").url
    'postgresql://me:secret@db/runs'
    >>> address_of("postgresql+psycopg2://me:secret@db/runs").name
    'postgresql://me:***@db/runs'

    Args:
        path: a file, ``sqlite:///file`` or ``postgresql://user@host/name``; a driver after a plus
            sign is accepted and makes no difference.

    Raises:
        ConfigError: it names neither.
    """
    found = _SCHEME.match(path)
    scheme = found.group(1).lower() if found else "sqlite"
    rest = path[found.end() :] if found else f"/{path}"
    if scheme in _POSTGRES:
        return Address(None, f"postgresql://{rest}")
    file = rest.removeprefix("/")
    if scheme != "sqlite" or not rest.startswith("/") or file in {"", ":memory:"}:
        raise ConfigError(
            f"{SETTING} is {_shown(path)!r}, which names no file and no "
            f"PostgreSQL database. Give sqlite:///FILE or postgresql://USER@HOST/NAME."
        )
    return Address(Path(file))


def _shown(url: str) -> str:
    return _PASSWORD.sub(r"\1:***@", _OPTION.sub(r"\1***", url))


def db_path(db_url: str) -> str | None:
    """Return the file that ``explorer.db_url`` names; None: it names something else.

    >>> db_path("sqlite:///runs/serve.db"), db_path("serve.db"), db_path("postgresql://host/db")
    ('runs/serve.db', 'serve.db', None)
    """
    path = db_url.removeprefix("sqlite:///")
    return None if "://" in path or not path else path
