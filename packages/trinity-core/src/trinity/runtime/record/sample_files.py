"""Find the blocks in the files of samples: each step's place, whatever else has become of a file.

samples/from-00000001.bin   block block block
samples/from-00000041.bin   block block torn
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.runtime.record.sample_format import (
    HEAD_SIZE,
    MAGIC,
    Head,
    decode,
    decode_rows,
    head_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from trinity.runtime.record.sample_format import Sample

FOLDER = "samples"
_PATTERN = "from-*.bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where the block of a step lies."""

    path: Path
    offset: int
    head: Head


def part_files(directory: Path) -> list[Path]:
    """Return the files of samples of a run directory, the oldest first."""
    return sorted(path for path in (directory / FOLDER).glob(_PATTERN) if path.is_file())


def find_blocks(path: Path, *, start: int = 0) -> tuple[list[Place], list[str]]:
    """Return the whole blocks of a file, and what else is in it, a line each.

    Args:
        path: the file.
        start: where a block begins, or the file ended when it was read before.

    Raises:
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    if size <= start:
        return [], []
    found: list[Place] = []
    problems: list[str] = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        size = len(content)
        place = start
        while place < size:
            head = head_of(content[place : place + HEAD_SIZE])
            if head is not None and place + head.size <= size:
                found.append(Place(path=path, offset=place, head=head))
                place += head.size
                continue
            after = content.find(MAGIC, place + 1)
            end = size if after < 0 else after
            what = "the end of" if after < 0 else "a part of"
            problems.append(f"{what} {path.name}, {end - place} bytes from {place}, is no block")
            place = end
    return found, problems


def read_step(place: Place) -> list[Sample]:
    """Return the rows of a step.

    Raises:
        DataError: the block is damaged.
        OSError: the file cannot be read.
    """
    return decode(place.head, _read(place, place.head.size))


def places_of(directory: Path) -> list[Place]:
    """Return where each step's samples lie in a run directory, in order.

    Raises:
        OSError: a file cannot be read.
    """
    return [place for path in part_files(directory) for place in find_blocks(path)[0]]


def read_rows(place: Place) -> list[dict[str, Any]]:
    """Return what of a step's rows is no array, without reading the arrays (Any: json).

    Raises:
        DataError: the block is damaged.
        OSError: the file cannot be read.
    """
    return decode_rows(place.head, _read(place, HEAD_SIZE + place.head.json_size))


def cut_samples(directory: Path, *, trained: int) -> list[str]:
    """Cut off the samples of steps after ``trained``; return what could not be done, a line each.

    Nothing that has become of the files stops a run: what cannot be read is removed.
    """
    problems = []
    for path in part_files(directory):
        try:
            _cut(path, trained)
        except OSError as error:
            problems.append(f"{path} cannot be cut back: {error.strerror or error}")
    return problems


def _cut(path: Path, trained: int) -> None:
    if not os.access(path, os.R_OK):
        path.unlink()
        return
    blocks, problems = find_blocks(path)
    end = _end_of(blocks, trained)
    if not end:
        path.unlink()
    elif problems or end < path.stat().st_size:
        os.truncate(path, end)


def _end_of(blocks: Sequence[Place], trained: int) -> int:
    """Return where the last block ends that stays."""
    end = 0
    for block in blocks:
        if block.head.step > trained:
            break
        end = block.offset + block.head.size
    return end


def _read(place: Place, size: int) -> bytes:
    with place.path.open("rb") as file:
        file.seek(place.offset)
        return file.read(size)
