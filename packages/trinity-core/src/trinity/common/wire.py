"""Experiences as they travel between processes: columns of numbers, and one pickle of the rest.

    experiences           tokens 7 3 5 | 7 9      reward .5 | 1.      info {...} | {...}
    Packet     columns:   values 7 3 5 7 9 , sizes 3 2                (numpy, out of band)
               rest:      [(eid, reward, info, ...), (...)]           (pickled once)

A column holds one field of all experiences end to end; ``sizes`` is -1 where it is None. Token ids
travel as int32 wherever they fit. An experience that is read has tensors of its own: nothing that
is done to them reaches the process they came from.

Who only passes experiences on takes ``held()``: their tensors are made when one is asked for, and
``encode`` copies the numbers of those that nobody asked for as they came.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from trinity.common.columns import TENSORS, Column
from trinity.common.experience import Experience
from trinity.common.lazy_experience import LazyExperience, PacketOrigin, joined_column
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["Packet", "encode"]

_REST = tuple(field.name for field in fields(Experience) if field.name not in TENSORS)
_rest_of = itemgetter(*_REST)


@dataclass(frozen=True, slots=True)
class Packet:
    """Experiences on their way; ``len`` is how many. Pickles with its columns out of band."""

    columns: dict[str, Column]
    rest: bytes  # pickled: a tuple of the other fields for each experience
    eids: tuple[str, ...]  # the unique id of each

    def __len__(self) -> int:
        return len(self.eids)

    def held(self) -> list[Experience]:
        """Return the experiences, in memory of the reader; tensors are made when asked for."""
        copies = {id(column): column.copied() for column in self.columns.values()}
        columns = {name: copies[id(column)] for name, column in self.columns.items()}
        origin = PacketOrigin(columns, len(self))
        rows: list[tuple[Any, ...]] = pickle.loads(self.rest)  # Any: the types of the fields
        return [
            LazyExperience.of(origin, place, dict(zip(_REST, row, strict=True)))
            for place, row in enumerate(rows)
        ]

    def decode(self) -> list[Experience]:
        """Return the experiences as they were."""
        rows: list[tuple[Any, ...]] = pickle.loads(self.rest)  # Any: the types of the fields
        nothing: list[Tensor | None] = [None] * len(rows)
        columns = [
            self.columns[name].tensors() if name in self.columns else nothing for name in TENSORS
        ]
        return [_restored(row, parts) for row, *parts in zip(rows, *columns, strict=True)]


def encode(experiences: Sequence[Experience]) -> Packet:
    """Return the experiences as a packet.

    Raises:
        DataError: what a workflow put into an experience cannot be pickled.
    """
    joined = {name: joined_column(experiences, name) for name in TENSORS}
    columns = {name: column for name, column in joined.items() if column is not None}
    if "returns" in columns and columns["returns"].is_same(columns.get("advantages")):
        columns["returns"] = columns["advantages"]  # which travel once
    return Packet(
        columns=columns,
        rest=_pickled(experiences),
        eids=tuple([experience.eid.uid for experience in experiences]),
    )


def _restored(row: tuple[Any, ...], tensors: Sequence[Tensor | None]) -> Experience:
    """Return the experience of these fields, which were checked when it was made."""
    experience = Experience.__new__(Experience)
    own = experience.__dict__
    own.update(zip(TENSORS, tensors, strict=True))
    own.update(zip(_REST, row, strict=True))
    return experience


def _pickled(experiences: Sequence[Experience]) -> bytes:
    rows = [_rest_of(experience.__dict__) for experience in experiences]
    try:
        return pickle.dumps(rows, protocol=5)
    except Exception:  # noqa: BLE001 -- whatever the classes in a workflow's info do
        return _pickled_by_value(rows, experiences)


def _pickled_by_value(rows: list[tuple[Any, ...]], experiences: Sequence[Experience]) -> bytes:
    """Return the pickle with classes that no module holds inside it, as those of a notebook."""
    from ray import cloudpickle

    dumps: Any = cloudpickle.dumps  # untyped
    try:
        return bytes(dumps(rows, protocol=5))
    except Exception as error:
        for experience, row in zip(experiences, rows, strict=True):
            for name, value in zip(_REST, row, strict=True):
                _require_portable(value, name=name, eid=experience.eid.uid)
        raise DataError(f"experiences cannot be pickled: {error}") from error


def _require_portable(value: object, *, name: str, eid: str) -> None:
    from ray import cloudpickle

    dumps: Any = cloudpickle.dumps  # untyped
    try:
        dumps(value)
    except Exception as error:
        raise DataError(
            f"experience {eid} cannot travel to another process: its {name} holds something that "
            f"does not pickle ({type(error).__name__}: {error}). Keep numbers, texts and lists in "
            f"it, or run with --local."
        ) from error
