"""Write down how a room's task is done, by one who knows where everything is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity_envs_alfworld.generate_problem import engine_names
from trinity_envs_alfworld.generate_things import APPLIANCES

if TYPE_CHECKING:
    from trinity_envs_alfworld.generate_rules import Rules
    from trinity_envs_alfworld.generate_things import Item, Place, Room

__all__ = ["walkthrough"]


def walkthrough(room: Room, *, rules: Rules) -> list[str]:
    """Return the commands that do the task: straight to each thing, nothing looked at."""
    goal, walk = room.goal, _Walk(room, rules)
    wanted = [item for item in room.items if item.kind == goal.item]
    if goal.lamp:
        lamp = next(item for item in room.items if item.kind == goal.lamp)
        walk.fetch(wanted[0])
        walk.light(lamp)
        return walk.commands
    target = next(place for place in room.places if place.kind == goal.place)
    for item in wanted[: 2 if goal.task_type == "pick_two_obj_and_place" else 1]:
        walk.fetch(item)
        if goal.task_type in APPLIANCES:
            verb, kind, _ = APPLIANCES[goal.task_type]
            walk.treat(item, verb, next(place for place in room.places if place.kind == kind))
        walk.put(item, target)
    return walk.commands


class _Walk:
    """Somebody who walks through the room and writes down each command."""

    def __init__(self, room: Room, rules: Rules) -> None:
        self._names, self._openable = engine_names(room), rules.openable
        self._at: Place | None = None
        self._opened: set[str] = set()
        self.commands: list[str] = []

    def fetch(self, item: Item) -> None:
        self._reach(item.place)
        self._say(f"take {self._names[item.name]} from {self._names[item.place.name]}")

    def treat(self, item: Item, verb: str, place: Place) -> None:
        self._go_to(place)
        self._say(f"{verb} {self._names[item.name]} with {self._names[place.name]}")

    def put(self, item: Item, place: Place) -> None:
        self._reach(place)
        self._say(f"move {self._names[item.name]} to {self._names[place.name]}")

    def light(self, lamp: Item) -> None:
        self._go_to(lamp.place)
        self._say(f"use {self._names[lamp.name]}")

    def _reach(self, place: Place) -> None:
        self._go_to(place)
        if place.kind in self._openable and place.name not in self._opened:
            self._opened.add(place.name)
            self._say(f"open {self._names[place.name]}")

    def _go_to(self, place: Place) -> None:
        if place != self._at:
            self._at = place
            self._say(f"go to {self._names[place.name]}")

    def _say(self, command: str) -> None:
        self.commands.append(command)
