"""Do the rows have the keys that ``format`` names? The first ones are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.config.check_names import tasksets_in_use
from trinity.common.config.first_rows import first_rows
from trinity.common.config.problem import Problem
from trinity.common.config.taskset import FormatConfig
from trinity.common.row_keys import no_such_key
from trinity.common.rows import NO_CELL, cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trinity.common.config.buffer import ExperienceBufferConfig
    from trinity.common.config.config import Config
    from trinity.common.config.first_rows import FirstRow
    from trinity.common.config.taskset import TasksetConfig

__all__ = ["row_problems"]

_TRAINER_INPUT = "buffer.trainer_input"
_STORED = {"tokens", "prompt_length"}  # of an experience that a run has written
_DEFAULTS = FormatConfig()
#: of a row of tasks; the others name what a row may leave out
_KEYS_OF_TASKS = ("prompt_key", "response_key")


def row_problems(config: Config) -> list[Problem]:
    """Return a problem for each key that ``format`` names and the first rows do not have."""
    problems: list[Problem] = []
    for path, taskset in tasksets_in_use(config):
        if taskset.storage_type == "file":
            problems += _of_tasks(config, path, taskset)
    for path, buffer in _supervised(config).items():
        problems += _of_supervised(config, path, buffer)
    return problems


def _of_tasks(config: Config, path: str, taskset: TasksetConfig) -> Iterator[Problem]:
    """Yield the keys that a row lacks where somebody asked for them, or others have them.

    A workflow that reads its rows by itself needs no key, so a default key may be missing from all.
    """
    rows = first_rows(taskset.path, split=taskset.split, subset_name=taskset.subset_name)
    for name in _KEYS_OF_TASKS:
        key = getattr(taskset.format, name)
        without = [row for row in rows if cell(row.values, key) is NO_CELL]
        is_asked_for = key != getattr(_DEFAULTS, name)
        if without and (is_asked_for or len(without) < len(rows)):
            yield _problem(config, f"{path}.format.{name}", _no_key(without[0], key, name))
    yield from _names_of_rows(config, path, taskset, rows)


def _names_of_rows(
    config: Config, path: str, taskset: TasksetConfig, rows: Sequence[FirstRow]
) -> Iterator[Problem]:
    """Yield the key of names that no row has, where nothing else names a workflow or a reward."""
    fallbacks = {
        "workflow_key": taskset.default_workflow_type,
        "reward_fn_key": taskset.default_reward_fn_type,
    }
    for name, fallback in fallbacks.items():
        key = getattr(taskset.format, name)
        if key and rows and not fallback and not any(key in row.values for row in rows):
            yield _problem(config, f"{path}.format.{name}", _no_key(rows[0], key, name))


def _supervised(config: Config) -> dict[str, ExperienceBufferConfig]:
    given = config.buffer.trainer_input
    if not config.has_trainer:
        return {}
    buffers = {
        f"{_TRAINER_INPUT}.auxiliary_buffers.{name}": buffer
        for name, buffer in given.auxiliary_buffers.items()
    }
    if config.mode == "train" and given.experience_buffer is not None:
        buffers[f"{_TRAINER_INPUT}.experience_buffer"] = given.experience_buffer
    return {path: buffer for path, buffer in buffers.items() if buffer.storage_type == "file"}


def _of_supervised(config: Config, path: str, buffer: ExperienceBufferConfig) -> Iterator[Problem]:
    told: set[str] = set()
    for row in first_rows(buffer.path, split=buffer.split, subset_name=buffer.subset_name):
        if row.values.keys() >= _STORED:
            continue
        for name in _missing(row.values, schema=buffer.schema_type, keys=buffer.format):
            if name not in told:
                told.add(name)
                message = _no_key(row, getattr(buffer.format, name), name)
                yield _problem(config, f"{path}.format.{name}", message)


def _missing(row: Mapping[str, Any], *, schema: str | None, keys: FormatConfig) -> list[str]:
    """Return the settings that name keys which the row should have and has not."""
    if keys.prompt_type != "plaintext" and keys.messages_key in row and schema != "dpo":
        return []
    wanted = {"dpo": ["chosen_key", "rejected_key"], "cpt": ["prompt_key"]}
    wanted["sft"] = ["prompt_key", "response_key"]
    missing = [name for name in wanted.get(schema or "", []) if getattr(keys, name) not in row]
    is_about_messages = schema == "sft" and keys.prompt_type == "messages"
    return ["messages_key"] if missing and is_about_messages else missing


def _no_key(row: FirstRow, key: str, setting: str) -> str:
    return no_such_key(row.origin, key=key, row=row.values, setting=setting)


def _problem(config: Config, path: str, message: str) -> Problem:
    """Return a problem at the key, or at the nearest section above it that the file has."""
    source, place = config.source, path
    while place and not source.where(place):
        place = place.rpartition(".")[0]
    return Problem(path=source.written(path), message=message, where=source.where(place))
