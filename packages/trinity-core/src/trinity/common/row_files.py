"""Which files of a folder are a split, by the words in their names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["files_of_split"]

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
