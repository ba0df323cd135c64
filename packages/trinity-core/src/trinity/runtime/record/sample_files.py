"""What was trained, in files: a block for each optimizer step, blocks end to end.

    samples/from-00000001.bin   block block block
    samples/from-00000041.bin   block block torn
    evaluations/<set>/from-00000010.bin   block: an evaluation, by its explore step
    bench/<set>/from-00000010.bin         block: one of mode bench, by its train step

    block   TRINITY-SAMPLES 2, step, rows, bytes of each part, checksum | json | columns

The head has one length, so that who looks for a step skips the rest. The json and the columns are
those of ``common/columns.py``. Blocks of format 1 say of a column its sizes alone.

L tokens of a row   R of its response
"""

from __future__ import annotations

import json
import mmap
import os
import re
import zlib
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from trinity.common.columns import unpack
from trinity.errors import DataError
from trinity.runtime.record.samples import FORMAT, MAGIC, part_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from trinity.runtime.record.samples import Row

OLDER_FORMAT = 1
_HEAD = re.compile(rb"TRINITY-SAMPLES ([12]) ( *\d+) ( *\d+) ( *\d+) ( *\d+) ([0-9a-f]{8})\n")
_FIELD_SIZES = (1, 12, 8, 12, 12, 8)  # a space or the end of the line after each
HEAD_SIZE = len(MAGIC) + sum(_FIELD_SIZES) + len(_FIELD_SIZES)
_DTYPES_OF_1 = {
    "tokens": "int32", "logprobs": "float32", "advantages": "float32", "token_rewards": "float32",
    "mask": "bits", "own_mask": "bits",
}  # fmt: skip
_ONCE_OF_1 = -2  # a size in format 1: one number stands for all R


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockHead:
    """The beginning of a block."""

    version: int = FORMAT
    step: int
    count: int  # of rows
    json_size: int  # bytes
    body_size: int
    crc: int

    @property
    def size(self) -> int:
        return HEAD_SIZE + self.json_size + self.body_size


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where the block of a step lies."""

    path: Path
    offset: int
    head: BlockHead


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One row that an optimizer step trained.

    Attributes:
        step: the optimizer step.
        eid: which experience it is, ``batch/task/run/step``.
        tokens: ``[L]`` int32.
        prompt_length: the response begins there.
        mask: ``[R]`` bool, the tokens that the loss was over.
        own_mask: ``[R]`` bool, those that the buffer gave as the model's own; what of them is not
            in ``mask`` was left out in the step.
        logprobs: ``[R]`` float32, of the rollout; None: not known.
        advantages: ``[R]`` float32; None: the algorithm has none.
        token_rewards: ``[R]`` float32; None: the reward is one number.
        reward: None: there is none.
        temperature: of the sampling.
        truncate_status: as the experience's.
        metrics: of the workflow.
        info: what was noted of it and is small.
        environment: what the run's environments answered, as JSON; None: nothing was kept, or it is
            with another row of the run.
    """

    step: int
    eid: str
    tokens: NDArray[np.int32]
    prompt_length: int
    mask: NDArray[np.bool_]
    own_mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32] | None = None
    advantages: NDArray[np.float32] | None = None
    token_rewards: NDArray[np.float32] | None = None
    reward: float | None = None
    temperature: float = 1.0
    truncate_status: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)  # Any: json
    environment: str | None = None

    @property
    def task(self) -> str:
        return "/".join(self.eid.split("/")[:2])

    @property
    def run(self) -> str:
        return ([*self.eid.split("/"), "", ""])[2]

    @property
    def advantage(self) -> float | None:
        """Return the mean over the trained tokens; None: none is trained, or there are none."""
        if self.advantages is None or not self.mask.any():
            return None
        return float(self.advantages[self.mask].mean())


_FIELDS = frozenset(one.name for one in fields(Sample)) - {"step"}


# --- one block


def head_of(data: bytes) -> BlockHead | None:
    """Return the head that bytes begin with; None: they begin with none."""
    found = _HEAD.match(data)
    if found is None or tuple(map(len, found.groups())) != _FIELD_SIZES:
        return None
    names = ("version", "step", "count", "json_size", "body_size")
    numbers = dict(zip(names, map(int, found.groups()[:5]), strict=True))
    return BlockHead(**numbers, crc=int(found[6], 16))


def _decode(head: BlockHead, data: bytes) -> list[Sample]:
    """Return the rows of a block.

    Raises:
        DataError: it is damaged.
    """
    if len(data) != head.size or zlib.crc32(data[HEAD_SIZE:]) != head.crc:
        raise DataError(f"the samples of step {head.step} are damaged: their checksum differs.")
    rows, described = _json_of(head, data)
    if head.version == OLDER_FORMAT:
        described = _described(described, rows)
    columns = unpack(described, data, HEAD_SIZE + head.json_size)
    arrays = {name: column.arrays() for name, column in columns.items()}
    samples = []
    for place, row in enumerate(rows):
        own: dict[str, Any] = {name: values[place] for name, values in arrays.items()}
        own["own_mask"] = own["mask"] if own.get("own_mask") is None else own["own_mask"]
        plain = {name: value for name, value in row.items() if name in _FIELDS}
        samples.append(Sample(step=head.step, **plain, **own))
    return samples


def _described(sizes: Mapping[str, list[int]], rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return what the columns of format 1 are, as format 2 says it."""
    widths = [row["length"] - row["prompt_length"] for row in rows]
    described = {}
    for name, dtype in _DTYPES_OF_1.items():
        if name in sizes:
            once = [place for place, size in enumerate(sizes[name]) if size == _ONCE_OF_1]
            own = [widths[n] if size == _ONCE_OF_1 else size for n, size in enumerate(sizes[name])]
            described[name] = {"dtype": dtype, "sizes": own, "once": once}
    return described


def _json_of(head: BlockHead, data: bytes) -> tuple[list[Row], dict[str, Any]]:  # Any: json
    """Return the fields of all rows of a block that are no arrays, and what its columns are.

    Raises:
        DataError: it is damaged.
    """
    try:
        content = json.loads(data[HEAD_SIZE : HEAD_SIZE + head.json_size])
        rows, columns = content["rows"], content["columns"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"the samples of step {head.step} are damaged: {error}.") from error
    if not (isinstance(rows, list) and isinstance(columns, dict) and len(rows) == head.count):
        raise DataError(f"the samples of step {head.step} are damaged: rows are missing.")
    return rows, columns


# --- the files of a run


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
    return _decode(place.head, _read(place, place.head.size))


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
    return _json_of(place.head, _read(place, HEAD_SIZE + place.head.json_size))[0]


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
