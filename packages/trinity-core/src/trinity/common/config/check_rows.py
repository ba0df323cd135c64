"""Do the rows have the keys that ``format`` names? The first rows of each dataset are looked at."""

from __future__ import annotations

import itertools
import json
import os
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.config.buffer import FormatConfig
from trinity.common.config.check_names import tasksets_in_use
from trinity.common.config.model import is_hub_id
from trinity.common.rows import (
    NO_CELL,
    cell,
    files_of_split,
    no_such_key,
    no_text,
    no_value,
    part_of_split,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from trinity.common.config.buffer import ExperienceBufferConfig, TasksetConfig
    from trinity.common.config.config import Config
    from trinity.common.config.problem import Problem

NUM_ROWS = 20


@dataclass(frozen=True, kw_only=True)
class FirstRow:
    """One of the first rows, and where it stands for a person."""

    values: Mapping[str, Any]
    origin: str


def first_rows(path: str | None, *, split: str, subset_name: str | None) -> list[FirstRow]:
    """Return up to 20 rows of a split; none where they cannot be had without a network.

    Files of JSON lines are read here, one of CSV or parquet by pyarrow, others by the library
    ``datasets``, which takes seconds to import, in its streaming mode, which makes no copy of them.
    What cannot be read is left to the checks of paths and the run.
    """
    if not path:
        return []
    place, (split, _) = Path(path).expanduser(), part_of_split(split)
    if os.path.isfile(place):
        return _of_file(place)
    folder = place if os.path.isdir(place) else cached_dataset(path)
    if folder is None or (folder / "dataset_dict.json").exists():  # of save_to_disk
        return []
    return _of_folder(folder, split=split, subset_name=subset_name)


def _of_file(path: Path) -> list[FirstRow]:
    if path.suffix == ".jsonl":
        return _of_json_lines([path])
    if path.suffix in {".csv", ".parquet"}:
        return _of_table(path)
    if path.suffix != ".json":
        return []
    given = {"path": "json", "data_files": str(path), "split": "train"}
    return _by_datasets(given, source=str(path))


def _of_folder(folder: Path, *, split: str, subset_name: str | None) -> list[FirstRow]:
    files = sorted(folder.glob("*.jsonl"))
    # os.walk passes over a folder that is gone meanwhile, as below /proc; rglob does not
    names = (name for _, _, names in os.walk(folder) for name in names)
    others = any(name.endswith((".parquet", ".csv")) for name in names)
    if files and not others and subset_name is None:
        return _of_json_lines(files_of_split(files, split=split))
    given = {"path": str(folder), "name": subset_name, "split": split}
    return _by_datasets(given, source=str(folder))


def _of_json_lines(files: list[Path]) -> list[FirstRow]:
    return list(itertools.islice(_rows_of(files), NUM_ROWS))


def _rows_of(files: list[Path]) -> Iterator[FirstRow]:
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                row = _row(line)
                if row is not None:
                    yield FirstRow(values=row, origin=f"{file}, row {number}")


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # said by the check of paths, or by the run with its line
        return None
    return row if isinstance(row, dict) else None


def _of_table(path: Path) -> list[FirstRow]:
    import pyarrow  # type: ignore[import-untyped]

    try:
        with closing(_batches(path)) as batches:
            batch = next(batches, None)
    except (OSError, pyarrow.ArrowException):
        return []
    return _numbered(batch.slice(0, NUM_ROWS).to_pylist() if batch else [], source=str(path))


def _batches(path: Path) -> Generator[Any, None, None]:  # Any: pyarrow's record batches
    """Yield a file's rows in pieces, the first of which holds at least as many as are wanted."""
    if path.suffix == ".parquet":
        from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]

        with ParquetFile(path) as file:
            yield from file.iter_batches(NUM_ROWS)
        return
    from pyarrow.csv import ParseOptions, open_csv  # type: ignore[import-untyped]

    with open_csv(path, parse_options=ParseOptions(newlines_in_values=True)) as reader:
        yield from reader


def _by_datasets(given: dict[str, Any], *, source: str) -> list[FirstRow]:
    import datasets  # type: ignore[import-untyped]

    datasets.disable_progress_bars()
    try:
        rows = list(datasets.load_dataset(**given, streaming=True).take(NUM_ROWS))
    except (OSError, ValueError, TypeError, datasets.exceptions.DatasetsError):
        return []
    return _numbered(rows, source=source)


def _numbered(rows: list[dict[str, Any]], *, source: str) -> list[FirstRow]:
    return [
        FirstRow(values=row, origin=f"{source}, row {number}")
        for number, row in enumerate(rows, start=1)
    ]


def cached_dataset(name: str) -> Path | None:
    """Return the folder of a dataset in the Hugging Face cache; None: it is not there.

    ``hf download --repo-type dataset`` puts it there, and ``datasets`` does not look there.
    """
    if not is_hub_id(name):
        return None
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, repo_type="dataset", local_files_only=True))
    except (OSError, ValueError):
        return None


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
            yield config.source.problem(f"{path}.format.{name}", _no_key(without[0], key, name))
        yield from _without_text(config, f"{path}.format.{name}", key, rows)
    yield from _names_of_rows(config, path, taskset, rows)


def _without_text(
    config: Config, path: str, key: str, rows: Sequence[FirstRow]
) -> Iterator[Problem]:
    """Yield a null prompt, and as a notice an empty prompt or a null answer."""
    setting = path.rpartition(".")[2]
    null = [row.origin for row in rows if cell(row.values, key) is None]
    empty = [row.origin for row in rows if cell(row.values, key) == ""]
    if null and setting == "prompt_key":
        yield config.source.problem(path, no_value(null[0], key=key, setting=setting))
    elif empty if setting == "prompt_key" else null:
        text = no_text(null or empty, key=key, setting=setting)
        yield replace(config.source.problem(path, text), severity="notice")


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
            yield config.source.problem(f"{path}.format.{name}", _no_key(rows[0], key, name))


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
                yield config.source.problem(f"{path}.format.{name}", message)


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
