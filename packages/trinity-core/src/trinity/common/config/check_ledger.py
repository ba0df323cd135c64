"""Can the ledger that ``storage_type: sql`` asks for be used?"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from trinity.common.config.check_algorithm import length_problems
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config.config import Config
    from trinity.common.config.problem import Problem

__all__ = ["Address", "address_of", "ledger_problems"]


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


_EXPERIENCES = "buffer.trainer_input.experience_buffer"
_KEY = "synchronizer.standalone"
_UNTIL = "a standalone trainer continues until all explorers are done"
_OTHERS = {
    "train": "standalone explorers",
    "explore": "a standalone trainer",
}
_INSTEAD = {
    "train": "To train once on the experiences in the buffer",
    "explore": "To fill the buffer for a later training",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def ledger_problems(config: Config) -> list[Problem]:
    """Return what keeps a ledger, or the separate runs that meet in one, from being used."""
    if config.mode == "bench":
        return []
    problems, buffer = list(_of_key(config)), config.buffer.trainer_input.experience_buffer
    if buffer is None or buffer.storage_type != "sql":
        return problems
    problems += [*_of_path(config, buffer.path), *_of_mode(config)]
    problems += _of_part(config) if config.shares_run_directory else ()
    problems += _of_standalone(config) if config.is_standalone else _of_epochs(config)
    return problems


def _of_key(config: Config) -> Iterator[Problem]:
    """Yield why explorer and trainer cannot be the separate runs that are asked for."""
    if not config.synchronizer.standalone:
        return
    if config.mode not in _OTHERS:
        what = f"is true, but mode is {config.mode}; standalone runs have mode explore or train."
        remedy = "Use one of these modes, or leave it out."
        yield config.source.problem(_KEY, what, remedy)
    buffer = config.buffer.trainer_input.experience_buffer
    storage = "queue" if buffer is None else buffer.storage_type
    if storage != "sql":
        what = f"is true, but standalone runs share a SQL buffer, and storage_type is {storage}."
        yield config.source.problem(_KEY, what, f"Set {_EXPERIENCES}.storage_type to sql.")


def _of_path(config: Config, path: str | None) -> Iterator[Problem]:
    if path is None:
        return
    try:
        address = address_of(path)
    except ConfigError as error:
        what, _, remedy = str(error).partition(". ")
        what = what.removeprefix(f"{_EXPERIENCES}.path ")
        yield config.source.problem(f"{_EXPERIENCES}.path", f"{what}.", remedy)
        return
    if address.file is None and find_spec("psycopg") is None:
        what = f"is {address.name!r}, and psycopg is not installed."
        remedy = "Install it: pip install 'trinity-core[postgres]'."
        yield config.source.problem(f"{_EXPERIENCES}.path", what, remedy)


def _of_mode(config: Config) -> Iterator[Problem]:
    if config.mode == "serve" and not config.has_trainer:
        what = "is sql, but in mode serve without a section trainer nothing reads it."
        remedy = "Add a section trainer, or use file, and give its path."
        yield config.source.problem(f"{_EXPERIENCES}.storage_type", what, remedy)


def _of_part(config: Config) -> Iterator[Problem]:
    """Yield what keeps a run from having its part of a run directory."""
    if not config.continue_from_checkpoint:
        what = "is false, but standalone explorer and trainer share one run directory."
        yield config.source.problem(
            "continue_from_checkpoint", what, "Leave it out; set another name."
        )
    name = config.explorer.name
    if config.mode == "explore" and (name == "trainer" or not _NAME.fullmatch(name)):
        what = f"is {name!r}, but it must be usable as a folder name in the run directory."
        remedy = "Use letters, digits, '-' and '_', but not 'trainer'."
        yield config.source.problem("explorer.name", what, remedy)


def _of_standalone(config: Config) -> Iterator[Problem]:
    yield replace(_other_run(config), severity="notice")
    if config.mode == "train":
        yield from length_problems(config, what_runs=_UNTIL)


def _of_epochs(config: Config) -> Iterator[Problem]:
    epochs = config.buffer.total_epochs
    if config.mode == "train" and epochs > 1:
        what = f"is {epochs}, but each experience of a SQL buffer is trained once."
        remedy = "To train it several times, explore into a file (storage_type: file)."
        found = config.source.problem("buffer.total_epochs", what, remedy)
        yield replace(found, severity="notice")


def _other_run(config: Config) -> Problem:
    """Return which run this one waits for, and how it would not where nobody asked for that."""
    other = "explore" if config.mode == "train" else "train"
    what = f"is {config.mode}: this run waits for {_OTHERS[config.mode]}."
    remedy = (
        f"Start a run of mode {other} too, with the same project, group, name and "
        f"checkpoint_root_dir, in any order."
    )
    if config.synchronizer.standalone is None:
        what = f"is {config.mode}: with storage_type sql this run waits for {_OTHERS[config.mode]} "
        what += f"({_KEY}: true)."
        remedy += f" {_INSTEAD[config.mode]}, set {_KEY} to false."
    return config.source.problem("mode", what, remedy)
