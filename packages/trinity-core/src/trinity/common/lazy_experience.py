"""Experiences that somebody holds only to pass them on: their tensors are made when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.columns import TENSORS, Column
from trinity.common.experience import Experience

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

__all__ = ["LazyExperience", "PacketOrigin", "joined_column"]


@dataclass(eq=False, slots=True)
class PacketOrigin:
    """The columns that held experiences came in."""

    columns: Mapping[str, Column]
    count: int

    def part(self, name: str, start: int, stop: int) -> Column | int:
        """Return that part of a column; a number: none of so many has the field."""
        column = self.columns.get(name)
        return stop - start if column is None else column.cut(start, stop)


class LazyExperience(Experience):
    """An experience like any other, whose tensors may still lie in the columns that it came in."""

    _origin: PacketOrigin
    _place: int

    @classmethod
    def of(cls, origin: PacketOrigin, place: int, fields: Mapping[str, Any]) -> LazyExperience:
        """Return the experience at a place of the columns, which were checked before they left.

        Args:
            origin: the columns.
            place: of the experience.
            fields: that are no tensors, by name.
        """
        held = cls.__new__(cls)
        own = held.__dict__
        own["_origin"], own["_place"] = origin, place
        own.update(fields)
        return held

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Experience):
            return NotImplemented
        return self is other or self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # as every experience

    def __reduce__(self) -> tuple[Callable[..., Experience], tuple[dict[str, Any]]]:
        names = Experience.__dataclass_fields__
        return _experience, ({name: getattr(self, name) for name in names},)


def joined_column(experiences: Sequence[Experience], name: str) -> Column | None:
    """Return a field of all of them as a column; the numbers of untouched tensors are copied."""
    parts: list[tuple[PacketOrigin, int, int]] = []
    for experience in experiences:
        own = experience.__dict__
        if name in own or "_origin" not in own:
            return Column.of([getattr(each, name) for each in experiences])
        origin, place = own["_origin"], own["_place"]
        if parts and parts[-1][0] is origin and parts[-1][2] == place:
            parts[-1] = (origin, parts[-1][1], place + 1)
        else:
            parts.append((origin, place, place + 1))
    return Column.joined([origin.part(name, start, stop) for origin, start, stop in parts])


def _experience(fields: dict[str, Any]) -> Experience:
    return Experience(**fields)


def _tensor_property(name: str) -> property:
    def get(held: LazyExperience) -> Tensor | None:
        own = held.__dict__
        if name not in own:
            part = None
            if "_origin" in own:  # otherwise it was not set yet
                place = own["_place"]
                part = own["_origin"].part(name, place, place + 1)
            own[name] = part.tensors()[0] if isinstance(part, Column) else None
        tensor: Tensor | None = own[name]
        return tensor

    def put(held: LazyExperience, value: Tensor | None) -> None:
        held.__dict__[name] = value

    return property(get, put)


for _name in TENSORS:
    setattr(LazyExperience, _name, _tensor_property(_name))
