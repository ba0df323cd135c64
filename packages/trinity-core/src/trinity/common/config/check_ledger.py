"""Can the ledger that ``storage_type: sql`` asks for be used?"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from trinity.common.config.database_path import address_of
from trinity.common.config.problem import Problem
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config.config import Config

__all__ = ["ledger_problems"]

_EXPERIENCES = "buffer.trainer_input.experience_buffer"


def ledger_problems(config: Config) -> list[Problem]:
    """Return what keeps a ledger from being used; of other storages nothing is asked."""
    buffer = config.buffer.trainer_input.experience_buffer
    if buffer is None or buffer.storage_type != "sql" or config.mode == "bench":
        return []
    return [*_of_path(config, buffer.path), *_of_mode(config)]


def _of_path(config: Config, path: str | None) -> Iterator[Problem]:
    if path is None:
        return
    try:
        address = address_of(path)
    except ConfigError as error:
        what, _, remedy = str(error).partition(". ")
        what = what.removeprefix(f"{_EXPERIENCES}.path ")
        yield _problem(config, "path", f"{what}.", remedy)
        return
    if address.file is None and find_spec("psycopg") is None:
        what = f"is {address.name!r}, which needs psycopg, which is not installed."
        yield _problem(config, "path", what, "Install it: pip install 'trinity-core[postgres]'.")


def _of_mode(config: Config) -> Iterator[Problem]:
    if config.mode == "both" or (config.mode == "serve" and config.has_trainer):
        return
    what = f"is sql, which mode {config.mode} cannot use yet."
    yield _problem(config, "storage_type", what, "Use file, and give its path.")


def _problem(config: Config, key: str, message: str, remedy: str) -> Problem:
    path = f"{_EXPERIENCES}.{key}"
    source = config.source
    return Problem(
        path=source.written(path),
        message=message,
        remedy=remedy,
        where=source.where(path) or source.where(_EXPERIENCES),
    )
