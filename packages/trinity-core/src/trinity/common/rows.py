"""Rows of data sets: what a column holds, and the files that a taskset or a buffer reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NO_CELL", "cell", "write_rows", "write_splits"]

NO_CELL = object()  # what a row holds in a column that it has not


def cell(row: Mapping[str, Any], key: str) -> Any:  # Any: somebody else's data
    """Return what a row holds in a column, or in a column within one; else ``NO_CELL``.

    >>> row = {"a.b": 1, "a": {"b": 2, "c": 3}}
    >>> cell(row, "a.b"), cell(row, "a.c"), cell(row, "a.d") is NO_CELL
    (1, 3, True)
    """
    if key in row or "." not in key:
        return row.get(key, NO_CELL)
    found: Any = row
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return NO_CELL
        found = found[part]
    return found


def write_rows(path: Path | str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object a line; the folder is made if missing.

    Args:
        path: the file, ``train.jsonl``; what it held is replaced.
        rows: what ``json`` can write.
    """
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(row) + "\n" for row in rows)
    file.write_text("".join(lines), encoding="utf-8")


def write_splits(folder: Path | str, splits: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
    """Write a file for each split, and the ``dataset_dict.json`` that names the splits.

    ``path: FOLDER`` of a taskset then reads ``train``, and ``split: NAME`` another.

    Args:
        folder: made if missing.
        splits: the rows of each, by its name.
    """
    for split, rows in splits.items():
        write_rows(Path(folder, f"{split}.jsonl"), rows)
    names = json.dumps({"splits": list(splits)})
    Path(folder, "dataset_dict.json").write_text(names, encoding="utf-8")
