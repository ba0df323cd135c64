"""Rows of data sets: what a column holds, and the files that a taskset or a buffer reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trinity.common.splits import files_of_split, part_of_split  # published here
from trinity.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "NO_CELL",
    "Row",
    "RowOrigin",
    "RowTable",
    "Rows",
    "cell",
    "files_of_split",
    "no_such_key",
    "no_text",
    "no_value",
    "part_of_split",
    "write_rows",
    "write_splits",
]

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


def no_such_key(origin: str, *, key: str, row: Mapping[str, Any], setting: str) -> str:
    """Return the message for a row without a configured key.

    >>> no_such_key("t.jsonl, row 2", key="question", row={"qestion": 1}, setting="prompt_key")[:37]
    "t.jsonl, row 2, has no key 'question'"
    """
    keys = ", ".join(map(str, row)) or "no key at all"
    return (
        f"{origin}, has no key {key!r}, which format.{setting} names."
        f"{did_you_mean(key, map(str, row))} It has: {keys}. Correct the row, or format.{setting}."
    )


def no_value(origin: str, *, key: str, setting: str) -> str:
    """Return the message for a row that holds null where the prompt should stand."""
    return (
        f"{origin}, has null in {key!r}, which format.{setting} names: the model would be asked "
        f"the text None. Correct or remove the row."
    )


def no_text(origins: Sequence[str], *, key: str, setting: str) -> str:
    """Return the notice for rows with an empty prompt, or null for an answer; at least one."""
    others = f" (and {len(origins) - 1} more rows)" if origins[1:] else ""
    what = "an empty text" if setting == "prompt_key" else "null"
    return f"{origins[0]}, has {what} in {key!r}, which format.{setting} names{others}."


Row = dict[str, Any]  # Any: somebody else's data


class RowTable(Protocol):
    """Rows by number."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __getitem__(self, number: int) -> Row:
        """Return a row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOrigin:
    """Where a row stands in the user's data."""

    source: str
    number: int  # from 1; a line of a file of JSON lines

    def __str__(self) -> str:
        return f"{self.source}, row {self.number}"


@dataclass(frozen=True, kw_only=True)
class Rows:
    """All rows of one split."""

    table: RowTable
    source: str
    columns: frozenset[str] | None = None  # None: each row has keys of its own
    origins: tuple[RowOrigin, ...] | None = None  # None: rows are counted through the source

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, number: int) -> Row:
        return self.table[number]

    def origin(self, number: int) -> RowOrigin:
        """Return where the row stands."""
        if self.origins is not None:
            return self.origins[number]
        return RowOrigin(source=self.source, number=number + 1)
