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
_KEY = "synchronizer.standalone"
_UNTIL = "a standalone trainer goes on until the explorers are done"
_OTHERS = {
    "train": "explorers that are separate runs",
    "explore": "a trainer that is a separate run",
}
_INSTEAD = {
    "train": "To train once on the experiences that are there",
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
        what = f"is true, but mode is {config.mode}, and the separate runs are of modes explore "
        remedy = "Use one of these modes, or leave it out."
        yield _problem(config, _KEY, f"{what}and train.", remedy)
    buffer = config.buffer.trainer_input.experience_buffer
    storage = "queue" if buffer is None else buffer.storage_type
    if storage != "sql":
        what = f"is true, but separate runs meet in a SQL buffer, and storage_type is {storage}."
        yield _problem(config, _KEY, what, f"Set {_EXPERIENCES}.storage_type to sql.")


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


def _of_part(config: Config) -> Iterator[Problem]:
    """Yield what keeps a run from having its part of a run directory."""
    if not config.continue_from_checkpoint:
        what = "is false, but explorer and trainer meet in one run directory."
        yield _problem(config, "continue_from_checkpoint", what, "Leave it out; set another name.")
    name = config.explorer.name
    if config.mode == "explore" and (name == "trainer" or not _NAME.fullmatch(name)):
        what = f"is {name!r}, which names a folder and a file of the run directory."
        remedy = "Use letters, digits, '-' and '_', and not 'trainer'."
        yield _problem(config, "explorer.name", what, remedy)


def _of_standalone(config: Config) -> Iterator[Problem]:
    yield replace(_other_run(config), severity="notice")
    if config.mode == "train":
        yield from length_problems(config, what_runs=_UNTIL)


def _of_epochs(config: Config) -> Iterator[Problem]:
    epochs = config.buffer.total_epochs
    if config.mode == "train" and epochs > 1:
        what = f"is {epochs}, but each experience of a SQL buffer is trained once."
        remedy = "To train it several times, explore into a file (storage_type: file)."
        found = _problem(config, "buffer.total_epochs", what, remedy)
        yield replace(found, severity="notice")


def _other_run(config: Config) -> Problem:
    """Return which run this one waits for, and how it would not where nobody asked for that."""
    other = "explore" if config.mode == "train" else "train"
    what = f"is {config.mode}: this run waits for {_OTHERS[config.mode]}."
    remedy = (
        f"Start one of mode {other} too, with the same project, group, name and "
        f"checkpoint_root_dir; which comes first makes no difference."
    )
    if config.synchronizer.standalone is None:
        what = f"is {config.mode}: with storage_type sql this run waits for {_OTHERS[config.mode]} "
        what += f"({_KEY}: true)."
        remedy += f" {_INSTEAD[config.mode]}, set {_KEY} to false."
    return _problem(config, "mode", what, remedy)


def _problem(config: Config, path: str, message: str, remedy: str) -> Problem:
    source = config.source
    return Problem(
        path=source.written(path),
        message=message,
        remedy=remedy,
        where=source.where(path) or source.where(path.rpartition(".")[0]),
    )
