"""The first rows of a dataset, as a check of a configuration looks at them."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.config.model_files import is_hub_id
from trinity.common.row_files import files_of_split

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["FirstRow", "first_rows"]

NUM_ROWS = 20
_BY_DATASETS = {".json": "json", ".parquet": "parquet", ".csv": "csv"}


@dataclass(frozen=True, kw_only=True)
class FirstRow:
    """One of the first rows, and where it stands for a person."""

    values: Mapping[str, Any]
    origin: str


def first_rows(path: str | None, *, split: str, subset_name: str | None) -> list[FirstRow]:
    """Return up to 20 rows of a split; none where they cannot be had without a network.

    Files of JSON lines are read here, others by the library ``datasets`` in its streaming mode,
    which makes no copy of them. What cannot be read is left to the checks of paths and the run.
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
    if path.suffix not in _BY_DATASETS:
        return []
    given = {"path": _BY_DATASETS[path.suffix], "data_files": str(path), "split": "train"}
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


def _by_datasets(given: dict[str, Any], *, source: str) -> list[FirstRow]:
    import datasets  # type: ignore[import-untyped]

    datasets.disable_progress_bars()
    try:
        rows = list(datasets.load_dataset(**given, streaming=True).take(NUM_ROWS))
    except (OSError, ValueError, TypeError, datasets.exceptions.DatasetsError):
        return []
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
