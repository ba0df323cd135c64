"""Splits of a data set: which files are of one, and which rows are a part of one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["files_of_split", "part_of_split"]


_PART = re.compile(r"([^\[\]]+)\[(-?\d+)?(%?):(-?\d+)?(%?)\]")


def part_of_split(split: str, *, count: int = 0) -> tuple[str, range]:
    """Return the split that ``train[:95%]`` is a part of, and which of its rows, as in datasets.

    >>> part_of_split("train[:95%]", count=50), part_of_split("train[95%:]", count=50)
    (('train', range(0, 48)), ('train', range(48, 50)))
    >>> part_of_split("train[-10:]", count=50), part_of_split("train", count=50)
    (('train', range(40, 50)), ('train', range(0, 50)))
    """
    found = _PART.fullmatch(split)
    if found is None:
        return split, range(count)
    name, *bounds = found.groups()
    start, end = (
        None if number is None else round(int(number) * count / 100) if unit else int(number)
        for number, unit in (bounds[:2], bounds[2:])
    )
    return name, range(count)[start:end]


_SPLIT_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}


def files_of_split(files: list[Path], *, split: str) -> list[Path]:
    """Return the files of a split by the words in their names; without any, all are ``train``."""
    by_split: dict[str, list[Path]] = {}
    for file in files:
        for name, words in _SPLIT_WORDS.items():
            if re.search(rf"(^|[-._ 0-9])({'|'.join(words)})([-._ 0-9]|$)", file.stem):
                by_split.setdefault(name, []).append(file)
                break
    return (by_split or {"train": files}).get(split, [])
