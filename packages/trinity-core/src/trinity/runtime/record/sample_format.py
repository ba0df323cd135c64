"""What was trained, as bytes: a block for each optimizer step, and where blocks lie in files.

    head: TRINITY-SAMPLES 1, step, rows, bytes of each part, checksum | json | columns

The head has one length, so that who looks for a step skips the rest. A column holds one field of
all rows end to end; a field that is the same number at each token of a row is held once.

L tokens of a row   R of its response

samples/from-00000001.bin   block block block
samples/from-00000041.bin   block block torn
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import zlib
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


MAGIC = b"TRINITY-SAMPLES 1 "
_HEAD = re.compile(rb"TRINITY-SAMPLES 1 ( *\d+) ( *\d+) ( *\d+) ( *\d+) ([0-9a-f]{8})\n")
_WIDTHS = (12, 8, 12, 12, 8)
HEAD_SIZE = len(MAGIC) + sum(_WIDTHS) + len(_WIDTHS)  # a space or the end of the line after each
ABSENT, _SAME = -1, -2  # sizes in a column: the row has none; one number stands for all R
_DTYPES = {"tokens": "<i4", "logprobs": "<f4", "advantages": "<f4", "token_rewards": "<f4"}
_MASKS = ("mask", "own_mask")

Array = Any  # Any: numpy's arrays of either kind
Column = tuple[list[int], Array]  # how many values each row has, ABSENT: none; those end to end
Row = dict[str, Any]  # Any: json


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockHead:
    """The beginning of a block."""

    step: int
    count: int  # of rows
    json_size: int  # bytes
    body_size: int
    crc: int

    @property
    def size(self) -> int:
        """Return the bytes of the whole block."""
        return HEAD_SIZE + self.json_size + self.body_size


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
        """Return ``batch/task``, which all tries of a task share."""
        return "/".join(self.eid.split("/")[:2])

    @property
    def run(self) -> str:
        """Return the number of the try."""
        return ([*self.eid.split("/"), "", ""])[2]

    @property
    def advantage(self) -> float | None:
        """Return the mean over the trained tokens; None: none is trained, or there are none."""
        if self.advantages is None or not self.mask.any():
            return None
        return float(self.advantages[self.mask].mean())


_FIELDS = frozenset(one.name for one in fields(Sample)) - {"step"}


def encode(step: int, rows: Sequence[Row], columns: Mapping[str, Column]) -> bytes:
    """Return the block of a step.

    Args:
        step: the optimizer step.
        rows: the fields of each :class:`Sample` that are no arrays, and ``length``, its tokens.
        columns: the others by name. ``own_mask`` may be left out where it is the same as ``mask``.
    """
    sizes: dict[str, list[int]] = {}
    body = []
    for name, dtype in _DTYPES.items():
        if name in columns:
            widths, values = columns[name]
            is_squeezed = name != "tokens"
            own, values = _squeezed(widths, values) if is_squeezed else (widths, values)
            sizes[name] = own
            body.append(np.asarray(values, dtype=dtype).tobytes())
    for name in _MASKS:
        if name in columns:
            sizes[name], bits = columns[name]
            body.append(np.packbits(bits).tobytes())
    text = _json({"rows": list(rows), "columns": sizes})
    parts = text + b"".join(body)
    head = b"%s%12d %8d %12d %12d %08x\n" % (
        MAGIC, step, len(rows), len(text), len(parts) - len(text), zlib.crc32(parts),
    )  # fmt: skip
    return head + parts


def head_of(data: bytes) -> BlockHead | None:
    """Return the head that bytes begin with; None: they begin with none."""
    found = _HEAD.match(data)
    if found is None or tuple(map(len, found.groups())) != _WIDTHS:
        return None
    step, count, json_size, body_size = (int(found[place]) for place in range(1, 5))
    return BlockHead(
        step=step, count=count, json_size=json_size, body_size=body_size, crc=int(found[5], 16)
    )


def decode_rows(head: BlockHead, data: bytes) -> list[Row]:
    """Return the fields of all rows of a block that are no arrays.

    Args:
        head: of the block.
        data: the block, or its beginning up to the columns.

    Raises:
        DataError: it is damaged.
    """
    return list(_json_of(head, data)["rows"])


def decode(head: BlockHead, data: bytes) -> list[Sample]:
    """Return the rows of a block.

    Raises:
        DataError: it is damaged.
    """
    if len(data) != head.size or zlib.crc32(data[HEAD_SIZE:]) != head.crc:
        raise DataError(f"the samples of step {head.step} are damaged: their checksum differs.")
    content = _json_of(head, data)
    rows, body = content["rows"], data[HEAD_SIZE + head.json_size :]
    widths: dict[str, list[int]] = {"tokens": [row["length"] for row in rows]}
    others = [row["length"] - row["prompt_length"] for row in rows]
    arrays = dict(_arrays(content["columns"], body, lambda name: widths.get(name, others)))
    samples = []
    for place, row in enumerate(rows):
        own: dict[str, Any] = {name: values[place] for name, values in arrays.items()}
        own["own_mask"] = own["mask"] if own.get("own_mask") is None else own["own_mask"]
        plain = {name: value for name, value in row.items() if name in _FIELDS}
        samples.append(Sample(step=head.step, **plain, **own))
    return samples


def _json_of(head: BlockHead, data: bytes) -> dict[str, Any]:  # Any: json
    try:
        content = json.loads(data[HEAD_SIZE : HEAD_SIZE + head.json_size])
        rows, columns = content["rows"], content["columns"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"the samples of step {head.step} are damaged: {error}.") from error
    if not (isinstance(rows, list) and isinstance(columns, dict) and len(rows) == head.count):
        raise DataError(f"the samples of step {head.step} are damaged: rows are missing.")
    return {"rows": rows, "columns": columns}


def _squeezed(widths: Sequence[int], values: Array) -> tuple[list[int], Array]:
    """Return a column that has a number that all tokens of a row share once."""
    sizes_B = np.array(widths, dtype=np.int64)
    rows_N = np.flatnonzero(sizes_B > 0)  # those that have values
    if not len(rows_N):
        return list(widths), values
    starts_N = np.concatenate([[0], np.cumsum(sizes_B[rows_N])[:-1]])
    is_same_N = np.minimum.reduceat(values, starts_N) == np.maximum.reduceat(values, starts_N)
    is_kept = np.repeat(~is_same_N, sizes_B[rows_N])
    is_kept[starts_N] = True
    sizes_B[rows_N[is_same_N]] = _SAME
    return sizes_B.tolist(), values[is_kept]


def _json(content: dict[str, Any]) -> bytes:  # Any: json
    try:
        return json.dumps(content, default=str, allow_nan=False).encode()
    except ValueError:  # numbers that JSON cannot hold
        return json.dumps(_finite(content), default=str).encode()


def _arrays(
    columns: Mapping[str, list[int]], body: bytes, widths: Callable[[str], Sequence[int]]
) -> Iterator[tuple[str, list[Array | None]]]:
    """Give each column, cut into rows of these widths."""
    place = 0
    for name in (*_DTYPES, *_MASKS):
        if name not in columns:
            continue
        sizes = columns[name]
        count = sum(1 if size == _SAME else max(size, 0) for size in sizes)
        if name in _MASKS:
            num_bytes = -(-count // 8)
            bits = np.frombuffer(body, np.uint8, num_bytes, place)
            values: Array = np.unpackbits(bits, count=count).astype(bool)
        else:
            num_bytes = np.dtype(_DTYPES[name]).itemsize * count
            values = np.frombuffer(body, _DTYPES[name], count, place)
        place += num_bytes
        yield name, _cut(values, sizes, widths(name))


def _cut(values: Array, sizes: Sequence[int], widths: Sequence[int]) -> list[Array | None]:
    parts: list[Array | None] = []
    place = 0
    for size, width in zip(sizes, widths, strict=True):
        if size == ABSENT:
            parts.append(None)
        elif size == _SAME:
            parts.append(np.full(width, values[place], dtype=values.dtype))
            place += 1
        else:
            parts.append(values[place : place + size])
            place += size
    return parts


def _finite(value: Any) -> Any:  # Any: json
    """Return the value with null for numbers that JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return value


FOLDER = "samples"
_PATTERN = "from-*.bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where the block of a step lies."""

    path: Path
    offset: int
    head: BlockHead


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
            _cut_file(path, trained)
        except OSError as error:
            problems.append(f"{path} cannot be cut back: {error.strerror or error}")
    return problems


def _cut_file(path: Path, trained: int) -> None:
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
