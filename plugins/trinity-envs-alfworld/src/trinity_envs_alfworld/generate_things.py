"""What a game is made of, as records."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["APPLIANCES", "LAMP", "Goal", "Item", "Place", "Room"]

LAMP = "DeskLamp"

# task type -> what one needs for it: its command, where it is done, to which objects
APPLIANCES = {
    "pick_clean_then_place_in_recep": ("clean", "SinkBasin", "Cleanable"),
    "pick_heat_then_place_in_recep": ("heat", "Microwave", "Heatable"),
    "pick_cool_then_place_in_recep": ("cool", "Fridge", "Coolable"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A receptacle and where one stands to use it."""

    kind: str
    name: str  # "Cabinet|+00.68|+00.50|-02.20"
    location: str  # "loc|2|-7|2|-30"


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A thing and the receptacle that it is in at first."""

    kind: str
    name: str
    place: Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What is asked for, in kinds."""

    task_type: str
    item: str
    place: str = ""  # where it goes; none when it is looked at
    lamp: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """All that a game is made of."""

    scene: int
    places: tuple[Place, ...]
    items: tuple[Item, ...]
    start: str  # a location with nothing at it
    goal: Goal
