"""Do the supervised rows have the keys that ``format`` names? The first one is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.config.problem import Problem
from trinity.common.row_keys import no_such_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trinity.common.config.buffer import ExperienceBufferConfig
    from trinity.common.config.config import Config
    from trinity.common.config.taskset import FormatConfig

__all__ = ["row_problems"]

_TRAINER_INPUT = "buffer.trainer_input"
_STORED = {"tokens", "prompt_length"}  # of an experience that a run has written


def row_problems(config: Config) -> list[Problem]:
    """Return a problem for each file of JSON lines whose first row lacks a key."""
    given = config.buffer.trainer_input
    buffers = {
        f"{_TRAINER_INPUT}.auxiliary_buffers.{name}": buffer
        for name, buffer in given.auxiliary_buffers.items()
    }
    if config.mode == "train" and given.experience_buffer is not None:
        buffers[f"{_TRAINER_INPUT}.experience_buffer"] = given.experience_buffer
    if config.mode not in {"both", "train"}:
        return []
    return [
        Problem(
            path=config.source.written(f"{path}.path"),
            message=message,
            where=config.source.where(f"{path}.path") or config.source.where(path),
            severity="error",
        )
        for path, buffer in buffers.items()
        for message in _messages(buffer)
    ]


def _messages(buffer: ExperienceBufferConfig) -> Iterator[str]:
    row, number = _first_row(buffer.path)
    if row is None or row.keys() >= _STORED:
        return
    for name in _missing(row, schema=buffer.schema_type, keys=buffer.format):
        key = getattr(buffer.format, name)
        yield no_such_key(f"{buffer.path}, row {number}", key=key, row=row, setting=name)


def _first_row(path: str | None) -> tuple[Mapping[str, Any] | None, int]:
    """Return the first row and its line; None: that is no such file, or another check's case."""
    file = Path(path or "")
    if file.suffix != ".jsonl" or not file.is_file():
        return None, 0
    with file.open(encoding="utf-8", errors="replace") as lines:
        number, line = next(((n, s) for n, s in enumerate(lines, 1) if s.strip()), (0, ""))
    try:
        row = json.loads(line)
    except ValueError:
        return None, number
    return (row if isinstance(row, dict) else None), number


def _missing(row: Mapping[str, Any], *, schema: str | None, keys: FormatConfig) -> list[str]:
    """Return the settings that name keys which the row should have and has not."""
    if keys.prompt_type != "plaintext" and keys.messages_key in row and schema != "dpo":
        return []
    wanted = {"dpo": ["chosen_key", "rejected_key"], "cpt": ["prompt_key"]}
    wanted["sft"] = ["prompt_key", "response_key"]
    missing = [name for name in wanted.get(schema or "", []) if getattr(keys, name) not in row]
    is_about_messages = schema == "sft" and keys.prompt_type == "messages"
    return ["messages_key"] if missing and is_about_messages else missing
