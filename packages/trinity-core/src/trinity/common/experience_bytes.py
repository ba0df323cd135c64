"""Experiences as bytes: a format with a version, numbers as they are, and no pickle.

    TRINITYX | version u32 | length u64 | json: rows without tensors, what the columns are | columns

A column holds one tensor field of all of them end to end. Bytes from outside cannot run code: json
and numbers hold data only.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from trinity.common.columns import TENSORS, Column
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from trinity.common.experience import Experience

__all__ = ["VERSION", "from_bytes", "one_from_bytes", "to_bytes"]

MAGIC = b"TRINITYX"
VERSION = 2
_OLDER = 1  # json, then safetensors with one tensor a field and row
_HEAD = struct.Struct("<IQ")
_WIDTHS = {"int32": 4, "int64": 8, "float16": 2, "float32": 4, "float64": 8, "bool": 1}  # bytes


def to_bytes(experiences: Sequence[Experience], *, is_strict: bool = False) -> bytes:
    """Return the experiences as bytes.

    Args:
        experiences: they.
        is_strict: whether ``info`` and ``metrics`` must be what json holds; otherwise other objects
            in them become their text.

    Raises:
        DataError: what is in one of them is none of that.
    """
    columns, arrays = _columns(experiences)
    rows = [_row(experience, is_strict=is_strict) for experience in experiences]
    head = {"columns": columns, "rows": rows}
    try:
        text = json.dumps(head, default=_number if is_strict else None)
    except (TypeError, ValueError) as error:
        raise _unfit(experiences, error) from error
    body = text.encode()
    parts = [MAGIC, _HEAD.pack(VERSION, len(body)), body]
    return b"".join([*parts, *(array.tobytes() for array in arrays)])


def from_bytes(data: bytes, *, make: Callable[[dict[str, Any]], Experience]) -> list[Experience]:
    """Return the experiences of ``to_bytes``.

    Args:
        data: the bytes.
        make: returns the experience of a row.

    Raises:
        DataError: the bytes are damaged, of another version, or of another format.
    """
    start = len(MAGIC) + _HEAD.size
    if not data.startswith(MAGIC) or len(data) < start:
        raise DataError(
            "these bytes are no experiences of Experience.serialize. Pickled ones of other "
            "programs are not read, as a pickle may run code: write them anew."
        )
    version, length = _HEAD.unpack(data[len(MAGIC) : start])
    if version not in {VERSION, _OLDER}:
        raise DataError(
            f"these experiences are of format {version}, this version of Trinity reads {_OLDER} "
            f"and {VERSION}. Write them anew with this version, or read them with the one that "
            f"wrote them."
        )
    try:
        head = json.loads(data[start : start + length])
        read = _rows if version == VERSION else _older_rows
        return [make(row) for row in read(head, data, start + length)]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise DataError(
            f"these experiences are damaged: {error}. Write them anew; nothing of them was read."
        ) from error


def one_from_bytes(data: bytes, *, make: Callable[[dict[str, Any]], Experience]) -> Experience:
    """Return the one experience that the bytes hold.

    Args:
        data: the bytes.
        make: returns the experience of a row.

    Raises:
        DataError: as ``from_bytes``, or they hold another number of them.
    """
    experiences = from_bytes(data, make=make)
    if len(experiences) != 1:
        raise DataError(
            f"these bytes hold {len(experiences)} experiences. Use Experience.deserialize_many."
        )
    return experiences[0]


def _columns(
    experiences: Sequence[Experience],
) -> tuple[dict[str, dict[str, Any]], list[np.ndarray[Any, Any]]]:
    described: dict[str, dict[str, Any]] = {}
    columns: dict[str, Column] = {}
    for name in TENSORS:
        column = Column.of([getattr(experience, name) for experience in experiences])
        if column is None:
            continue
        if name == "returns" and column.is_same(columns.get("advantages")):
            described[name] = {"same": "advantages"}
            continue
        columns[name] = column
        described[name] = {"dtype": str(column.values.dtype), "sizes": column.sizes.tolist()}
    return described, [column.values for column in columns.values()]


def _row(experience: Experience, *, is_strict: bool) -> dict[str, Any]:
    own = ("info", "metrics") if is_strict else ()
    row = experience.to_dict(without=(*TENSORS, *own))
    kept = {name: value for name, value in row.items() if value is not None}
    return kept | {name: getattr(experience, name) for name in own}


def _number(value: Any) -> Any:  # Any: of a workflow's own code
    """Return a number of numpy or torch, or an array of them, as json can hold it.

    Raises:
        TypeError: it is neither.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is not JSON")


def _unfit(experiences: Sequence[Experience], error: Exception) -> DataError:
    for experience in experiences:
        for field in ("info", "metrics"):
            for key, value in getattr(experience, field).items():
                try:
                    json.dumps({key: value}, default=_number)
                except (TypeError, ValueError):
                    return DataError(
                        f"experience {experience.eid.uid} cannot be stored: its {field}[{key!r}] "
                        f"is a {type(value).__name__}, or holds something, that JSON does not "
                        f"have. Let the workflow note numbers, texts, lists and dicts there."
                    )
    return DataError(f"these experiences cannot be stored: {error}. Note only what JSON has.")


def _rows(head: Any, data: bytes, start: int) -> list[dict[str, Any]]:  # Any: json
    rows: list[dict[str, Any]] = head["rows"]
    fields: dict[str, list[Tensor | None]] = {}
    for name, described in head["columns"].items():
        if name not in TENSORS:
            raise ValueError(f"there is no field {name!r} of tensors")
        if "same" in described:
            fields[name] = Column.of(fields[described["same"]]).tensors()  # type: ignore[union-attr]
            continue
        column, start = _column(described, data, start)
        fields[name] = column.tensors()
    if start != len(data) or any(len(values) != len(rows) for values in fields.values()):
        raise ValueError("the numbers are not as many as were written")
    return [
        row | {name: values[place] for name, values in fields.items()}
        for place, row in enumerate(rows)
    ]


def _column(described: Mapping[str, Any], data: bytes, start: int) -> tuple[Column, int]:
    sizes = np.array(described["sizes"], dtype=np.int32)
    count = int(np.maximum(sizes, 0).sum())
    width = _WIDTHS[described["dtype"]]
    if count * width > len(data) - start:
        raise ValueError("the numbers end early")
    values = np.frombuffer(data, dtype=described["dtype"], count=count, offset=start)
    return Column(values, sizes), start + count * width


def _older_rows(rows: Any, data: bytes, start: int) -> list[dict[str, Any]]:  # Any: json
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(data[start:])
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return [
        {**row, **{name: tensors.get(f"{place}:{name}") for name in TENSORS}}
        for place, row in enumerate(rows)
    ]
