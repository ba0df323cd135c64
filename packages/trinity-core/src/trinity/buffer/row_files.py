"""Load the rows of a dataset: from a file, a folder, or an id of the Hugging Face hub.

Files of JSON lines, the usual case, are read here; for everything else the library ``datasets`` is
imported, which takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.config.check_rows import cached_dataset
from trinity.common.rows import RowOrigin, Rows, files_of_split, part_of_split
from trinity.errors import DataError

if TYPE_CHECKING:
    from trinity.common.rows import Row

_FORMATS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}


def load_rows(
    path: str | None, *, split: str = "train", subset_name: str | None = None, setting: str = "path"
) -> Rows:
    """Return the rows of a split, at least one.

    Args:
        path: a file, a folder, or the id of a dataset.
        split: the part of the dataset, or of a split, ``train[:95%]``; a single file has only
            ``train``.
        subset_name: the configuration of the dataset.
        setting: what the path is called in the configuration, for messages.

    Raises:
        DataError: there is no such dataset or split, it has no rows, or a line is no JSON object.
    """
    if not path:
        raise DataError(f"{setting} is not set. Name a file, a folder or a dataset id.")
    local, (whole, _) = Path(path).expanduser(), part_of_split(split)
    if not local.exists():
        rows = _from_hub(path, split=whole, subset_name=subset_name, setting=setting)
    elif local.is_file():
        rows = _from_file(local, split=whole, setting=setting)
    else:
        rows = _from_folder(local, split=whole, subset_name=subset_name, setting=setting)
    if len(rows) == 0:
        raise DataError(f"{rows.source} has no rows, and {setting} names it. Add rows to it.")
    return rows if whole == split else _part(rows, split)


def _part(rows: Rows, split: str) -> Rows:
    _, numbers = part_of_split(split, count=len(rows))
    if not numbers:
        raise DataError(f"{rows.source} has {len(rows)} rows, and none in split {split!r}.")
    table: Any = rows.table  # Any: a list, or of datasets
    chosen = [table[n] for n in numbers] if isinstance(table, list) else table.select(numbers)
    return replace(rows, table=chosen, origins=tuple(map(rows.origin, numbers)))


def _from_file(path: Path, *, split: str, setting: str) -> Rows:
    if path.suffix not in _FORMATS:
        raise DataError(
            f"{path} is no dataset that can be read, and {setting} names it. "
            f"Give a file that ends in {', '.join(_FORMATS)}."
        )
    if split != "train":
        raise DataError(
            f"{path} is one file, which has no split {split!r}. Leave split out, or let {setting} "
            f"name the folder that holds train.jsonl and {split}.jsonl."
        )
    if path.suffix == ".jsonl":
        return _from_json_lines([path], source=str(path))
    return _by_datasets(_FORMATS[path.suffix], split="train", source=str(path), files=str(path))


def _from_folder(path: Path, *, split: str, subset_name: str | None, setting: str) -> Rows:
    files = sorted(path.glob("*.jsonl"))
    others = [file for end in (".parquet", ".csv", ".arrow") for file in path.rglob(f"*{end}")]
    if files and not others and subset_name is None and split.isalnum():
        chosen = files_of_split(files, split=split)
        if not chosen:
            raise DataError(
                f"{path} has no split {split!r}, and {setting} names it. It has: "
                f"{', '.join(file.name for file in files)}."
            )
        return _from_json_lines(chosen, source=str(path))
    if (path / "dataset_dict.json").exists() or (path / "dataset_info.json").exists():
        saved = _saved_by_datasets(path, split=split)
        if saved is not None:
            return saved
    if not files and not others and not any(path.rglob("*.json")):
        raise DataError(
            f"{path} holds no data file, and {setting} names it. "
            f"Put {', '.join(_FORMATS)} files into it."
        )
    return _by_datasets(str(path), split=split, source=str(path), subset_name=subset_name)


def _from_hub(path: str, *, split: str, subset_name: str | None, setting: str) -> Rows:
    looks_local = path.startswith(("/", ".", "~")) or Path(path).suffix in _FORMATS
    if looks_local or path.count("/") > 1:
        raise DataError(
            f"{path} does not exist, and {setting} names it. Relative paths count from the working "
            f"directory, {Path.cwd()}."
        )
    try:
        return _by_datasets(path, split=split, source=path, subset_name=subset_name)
    except DataError:
        folder = cached_dataset(path)
        if folder is None:
            raise
    return _by_datasets(str(folder), split=split, source=path, subset_name=subset_name)


def _from_json_lines(files: list[Path], *, source: str) -> Rows:
    rows: list[Row] = []
    origins: list[RowOrigin] = []
    for file in files:
        for number, line in _lines(file):
            origin = RowOrigin(source=str(file), number=number)
            rows.append(_row(line, origin=origin))
            origins.append(origin)
    return Rows(table=rows, source=source, origins=tuple(origins))


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that hold something, with their numbers from 1."""
    try:
        with file.open(encoding="utf-8") as lines:
            yield from (
                (number, line) for number, line in enumerate(lines, start=1) if line.strip()
            )
    except (OSError, UnicodeDecodeError) as e:
        reason = getattr(e, "strerror", None) or e
        raise DataError(
            f"{file} cannot be read: {reason}. Correct it or its permissions, or name another file."
        ) from e


def _row(line: str, *, origin: RowOrigin) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as e:
        raise DataError(f"{origin}, is no JSON ({e.msg}). Correct or remove the line.") from e
    if not isinstance(row, Mapping):
        shown = line.strip()[:40]
        raise DataError(f"{origin}, is no JSON object, but {shown!r}. Correct the line.")
    return dict(row)


def _by_datasets(
    name: str, *, split: str, source: str, files: str | None = None, subset_name: str | None = None
) -> Rows:
    import datasets  # type: ignore[import-untyped]

    datasets.disable_progress_bars()
    try:
        table = datasets.load_dataset(name, subset_name, data_files=files, split=split)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as e:
        is_local = Path(source).expanduser().exists()
        remedy = (
            "Check the files, split and subset_name."
            if is_local
            else "Check the name; without a network it must be in the Hugging Face cache."
        )
        raise DataError(
            f"the dataset {source} cannot be read (split {split!r}, subset {subset_name!r}): "
            f"{type(e).__name__}: {_first_line(e)}. {remedy}"
        ) from e
    return Rows(table=table, source=source, columns=frozenset(table.column_names))


def _saved_by_datasets(path: Path, *, split: str) -> Rows | None:
    """Return what ``save_to_disk`` wrote into the folder; None if it did not."""
    is_one_split = (path / "state.json").exists()
    if not is_one_split and not (path / split / "state.json").exists():
        return None
    import datasets

    table = datasets.load_from_disk(str(path if is_one_split else path / split))
    return Rows(table=table, source=str(path), columns=frozenset(table.column_names))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0].rstrip(".")
