"""Writes the files that a taskset or a demonstration buffer reads: one JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["write_rows", "write_splits"]


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
