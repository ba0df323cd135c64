"""Can the ledger that ``storage_type: sql`` asks for be used?"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from trinity.common.config.check_serve import length_problems
from trinity.common.config.database_path import address_of
from trinity.common.config.problem import Problem
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config.config import Config

__all__ = ["ledger_problems"]

_EXPERIENCES = "buffer.trainer_input.experience_buffer"
_UNTIL = "a trainer apart goes on until the explorers are done"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def ledger_problems(config: Config) -> list[Problem]:
    """Return what keeps a ledger from being used; of other storages nothing is asked."""
    buffer = config.buffer.trainer_input.experience_buffer
    if buffer is None or buffer.storage_type != "sql" or config.mode == "bench":
        return []
    apart = _of_sides(config) if config.is_apart else ()
    return [*_of_path(config, buffer.path), *_of_mode(config), *apart]


def _of_path(config: Config, path: str | None) -> Iterator[Problem]:
    if path is None:
        return
    try:
        address = address_of(path)
    except ConfigError as error:
        what, _, remedy = str(error).partition(". ")
        what = what.removeprefix(f"{_EXPERIENCES}.path ")
        yield _problem(config, f"{_EXPERIENCES}.path", f"{what}.", remedy)
        return
    if address.file is None and find_spec("psycopg") is None:
        what = f"is {address.name!r}, which needs psycopg, which is not installed."
        remedy = "Install it: pip install 'trinity-core[postgres]'."
        yield _problem(config, f"{_EXPERIENCES}.path", what, remedy)


def _of_mode(config: Config) -> Iterator[Problem]:
    if config.mode == "serve" and not config.has_trainer:
        what = "is sql, but without a section trainer mode serve has nobody who reads it."
        remedy = "Add a section trainer, or use file, and give its path."
        yield _problem(config, f"{_EXPERIENCES}.storage_type", what, remedy)


def _of_sides(config: Config) -> Iterator[Problem]:
    """Yield what keeps explorer and trainer, each a run of its own, from meeting."""
    if not config.continue_from_checkpoint:
        what = "is false, but explorer and trainer meet in one run directory."
        yield _problem(config, "continue_from_checkpoint", what, "Leave it out; set another name.")
    yield replace(_other_side(config), severity="notice")
    if config.mode == "train":
        yield from length_problems(config, what_runs=_UNTIL)
    name = config.explorer.name
    if config.mode == "explore" and (name == "trainer" or not _NAME.fullmatch(name)):
        what = f"is {name!r}, which names a folder and a file of the run directory."
        remedy = "Use letters, digits, '-' and '_', and not 'trainer'."
        yield _problem(config, "explorer.name", what, remedy)


def _other_side(config: Config) -> Problem:
    own, other, does = (
        ("trains", "explore", "explores")
        if config.mode == "train"
        else ("explores", "train", "trains")
    )
    what = f"is {config.mode}: with storage_type sql this run {own}, and waits for one that {does}."
    remedy = (
        f"Start one of mode {other} too, with the same project, group, name and "
        f"checkpoint_root_dir; which comes first makes no difference."
    )
    return _problem(config, "mode", what, remedy)


def _problem(config: Config, path: str, message: str, remedy: str) -> Problem:
    source = config.source
    return Problem(
        path=source.written(path),
        message=message,
        remedy=remedy,
        where=source.where(path) or source.where(path.rpartition(".")[0]),
    )
