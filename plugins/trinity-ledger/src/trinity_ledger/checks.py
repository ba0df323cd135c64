"""Can the ledger that ``storage_type: sql`` asks for be used?"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from trinity.errors import ConfigError

from trinity_ledger.address import address_of
from trinity_ledger.endless import length_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config.config import Config
    from trinity.common.config.problem import Problem

__all__ = ["ledger_problems"]

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
    buffer = config.buffer.trainer_input.experience_buffer
    if buffer is None or buffer.storage_type != "sql":  # an auxiliary buffer names it
        return []
    problems = [*_of_path(config, buffer.path), *_of_mode(config)]
    problems += _of_part(config) if config.shares_run_directory else ()
    problems += _of_standalone(config) if config.is_standalone else _of_epochs(config)
    return problems


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
        remedy = "Install it: pip install 'trinity-ledger[postgres]'."
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
