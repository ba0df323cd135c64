"""The first rows of a dataset, as a check of a configuration looks at them."""

from __future__ import annotations

import itertools
import json
import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.config.model_files import is_hub_id
from trinity.common.row_files import files_of_split

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

__all__ = ["FirstRow", "first_rows"]

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
    place = Path(path).expanduser()
    if os.path.isfile(place):
        return _of_file(place)
    folder = place if os.path.isdir(place) else _cached(path)
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
    others = any(next(folder.rglob(f"*{end}"), None) for end in (".parquet", ".csv"))
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


def _cached(name: str) -> Path | None:
    """Return the folder of a dataset in the Hugging Face cache; None: it is not there."""
    if not is_hub_id(name):
        return None
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, repo_type="dataset", local_files_only=True))
    except (OSError, ValueError):
        return None
