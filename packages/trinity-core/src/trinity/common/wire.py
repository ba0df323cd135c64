"""Experiences as they travel between the processes of one run: columns, and one pickle of the rest.

The columns travel out of band, and ``info`` keeps the objects of a workflow. An experience that is
read has tensors of its own: nothing that is done to them reaches the process they came from.

Who only passes experiences on takes ``held()``: their tensors are made when one is asked for, and
``encode`` copies the numbers of those that nobody asked for as they came.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from trinity.common.columns import TENSORS, columns_of
from trinity.common.experience import Experience
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from trinity.common.columns import Column

__all__ = ["LazyExperience", "Packet", "encode"]

_REST = tuple(field.name for field in fields(Experience) if field.name not in TENSORS)
_rest_of = itemgetter(*_REST)


class LazyExperience(Experience):
    """An experience like any other, whose tensors may still lie in the columns that it came in."""

    _columns: Mapping[str, Column]
    _place: int

    @classmethod
    def of(
        cls, columns: Mapping[str, Column], place: int, values: Mapping[str, Any]
    ) -> LazyExperience:
        """Return the experience at a place of the columns, which were checked before they left.

        Args:
            columns: they; one object for all experiences that came together.
            place: of the experience.
            values: of the fields that are no tensors, by name.
        """
        held = cls.__new__(cls)
        held.__dict__.update(values, _columns=columns, _place=place)
        return held

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Experience):
            return NotImplemented
        return self is other or self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # as every experience

    def __reduce__(self) -> tuple[Callable[..., Experience], tuple[dict[str, Any]]]:
        names = Experience.__dataclass_fields__
        return _experience, ({name: getattr(self, name) for name in names},)


def _experience(values: dict[str, Any]) -> Experience:
    return Experience(**values)


def _tensor_property(name: str) -> property:
    def get(held: LazyExperience) -> Tensor | None:
        own = held.__dict__
        if name not in own:
            column = own.get("_columns", {}).get(name)  # no columns: it was not set yet
            place = own.get("_place", 0)
            own[name] = None if column is None else column.cut(place, place + 1).tensors()[0]
        tensor: Tensor | None = own[name]
        return tensor

    def put(held: LazyExperience, value: Tensor | None) -> None:
        held.__dict__[name] = value

    return property(get, put)


for _name in TENSORS:
    setattr(LazyExperience, _name, _tensor_property(_name))


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
        rows: list[tuple[Any, ...]] = pickle.loads(self.rest)  # Any: the types of the fields
        return [
            LazyExperience.of(columns, place, dict(zip(_REST, row, strict=True)))
            for place, row in enumerate(rows)
        ]

    def decode(self) -> list[Experience]:
        """Return the experiences as they were, in memory of the reader."""
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
    eids = tuple([experience.eid.uid for experience in experiences])
    return Packet(columns_of(experiences), _pickled(experiences), eids)


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
