"""Experiences as bytes: what the wire, the ledger and files have in common.

    TRINITYX | version u32 | length u64 | json: rows, what the columns are | columns

``common/columns.py`` makes the columns. Bytes from outside cannot run code, as JSON and numbers
hold data only.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from trinity.common.columns import TENSORS, columns_of, pack, unpack
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity.common.experience import Experience

__all__ = ["VERSION", "from_bytes", "to_bytes"]

MAGIC = b"TRINITYX"
VERSION = 2
_OLDER = 1  # json, then safetensors with one tensor a field and row
_HEAD = struct.Struct("<IQ")


def to_bytes(experiences: Sequence[Experience], *, is_strict: bool = False) -> bytes:
    """Return the experiences as bytes.

    Args:
        experiences: they.
        is_strict: whether ``info`` and ``metrics`` must be what json holds; otherwise other objects
            in them become their text.

    Raises:
        DataError: what is in one of them is none of that.
    """
    rows = [_row(experience, is_strict=is_strict) for experience in experiences]
    try:
        text, body = pack(
            rows, columns_of(experiences), dumps=_strict_json if is_strict else json.dumps
        )
    except (TypeError, ValueError) as error:
        raise _unfit(experiences, error) from error
    return b"".join([MAGIC, _HEAD.pack(VERSION, len(text)), text, body])


def from_bytes(data: bytes, *, make: Callable[[dict[str, Any]], Experience]) -> list[Experience]:
    """Return the experiences of ``to_bytes``, also of older versions.

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
        read = _rows_of_1 if version == 1 else _rows
        return [make(row) for row in read(head, data, start + length)]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise DataError(
            f"these experiences are damaged: {error}. Write them anew; nothing of them was read."
        ) from error


def _row(experience: Experience, *, is_strict: bool) -> dict[str, Any]:
    own = ("info", "metrics") if is_strict else ()
    row = experience.to_dict(without=(*TENSORS, *own))
    kept = {name: value for name, value in row.items() if value is not None}
    return kept | {name: getattr(experience, name) for name in own}


def _strict_json(content: Any) -> str:  # Any: json, with what a workflow noted
    return json.dumps(content, default=_number)


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
                    _strict_json({key: value})
                except (TypeError, ValueError):
                    return DataError(
                        f"experience {experience.eid.uid} cannot be stored: its {field}[{key!r}] "
                        f"is a {type(value).__name__}, or holds something, that JSON does not "
                        f"have. Let the workflow note numbers, texts, lists and dicts there."
                    )
    return DataError(f"these experiences cannot be stored: {error}. Note only what JSON has.")


def _rows(head: Any, data: bytes, start: int) -> list[dict[str, Any]]:  # Any: json
    rows: list[dict[str, Any]] = head["rows"]
    columns = unpack(head["columns"], data, start)
    tensors = {name: column.tensors() for name, column in columns.items()}
    if not set(tensors) <= set(TENSORS) or any(len(one) != len(rows) for one in tensors.values()):
        raise ValueError("the numbers are not those of the rows")
    return [
        row | {name: values[place] for name, values in tensors.items()}
        for place, row in enumerate(rows)
    ]


def _rows_of_1(rows: Any, data: bytes, start: int) -> list[dict[str, Any]]:  # Any: json
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
