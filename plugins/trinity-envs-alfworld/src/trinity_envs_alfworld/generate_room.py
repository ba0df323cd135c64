"""Draw a room, what lies in it and a task to do there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity_envs_alfworld.generate_things import APPLIANCES, LAMP, Goal, Item, Place, Room

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from trinity_envs_alfworld.generate_rules import Rules, Scene

__all__ = ["SIZES", "RoomSize", "drawn"]

_LAMP_HOMES = ("Desk", "SideTable", "Dresser", "Shelf", "CoffeeTable", "DiningTable")
_GRID = 0.25  # metres between two places where one can stand
_MOST_OF_A_KIND = 3
_BURNERS = 4
_FILLERS = ("Drawer", "Shelf", "Cabinet", "SideTable")  # what a room has more of, if it is to grow


@dataclass(frozen=True, kw_only=True, slots=True)
class RoomSize:
    """How many things a room has; both ends may be drawn."""

    num_receptacles: tuple[int, int]
    num_objects: tuple[int, int]
    max_openable: int = 99  # beside those that the task needs


SIZES = {
    "tiny": RoomSize(num_receptacles=(4, 6), num_objects=(4, 8), max_openable=2),
    "small": RoomSize(num_receptacles=(11, 11), num_objects=(10, 10)),
    "medium": RoomSize(num_receptacles=(20, 20), num_objects=(20, 20)),
    "large": RoomSize(num_receptacles=(28, 28), num_objects=(42, 42)),
}


def drawn(
    rng: random.Random, *, rules: Rules, task_type: str, size: str, scenes: Sequence[int]
) -> Room | None:
    """Return a room where nothing of the task is done yet; None if this draw holds no such task.

    Args:
        rng: all chance comes from it.
        rules: what may lie where.
        task_type: one of ``TASK_TYPES``.
        size: one of ``SIZES``.
        scenes: floor plans to draw from.
    """
    kinds = rules.room_kinds[task_type]
    kind = rng.choice(sorted({rules.scenes[n].room for n in scenes} & set(kinds)))
    number = rng.choice([n for n in scenes if rules.scenes[n].room == kind])
    scene, wanted = rules.scenes[number], SIZES[size]
    stock = _Stock(rng, scene=scene, rules=rules)
    goal = _goal(rng, rules=rules, scene=scene, kinds=stock.kinds, task_type=task_type)
    if goal is None:
        return None
    places = stock.places(_needed(rng, goal, rules, stock.kinds), wanted)
    items = _Items(rng, rules=rules, goal=goal, places=places)
    items.put_those_of_the_task()
    items.fill(scene.objects, count=rng.randint(*wanted.num_objects))
    return Room(
        scene=number, places=places, items=tuple(items.items), start=stock.free_spot(), goal=goal
    )


def _goal(
    rng: random.Random, *, rules: Rules, scene: Scene, kinds: Sequence[str], task_type: str
) -> Goal | None:
    """Return a task for which the room has all kinds of things."""
    _, appliance, action = APPLIANCES.get(task_type, ("", "", ""))
    if appliance and appliance not in kinds:
        return None
    chances = {}
    for item in scene.objects:
        homes = sorted(set(rules.homes(item)) & set(kinds))
        places = [kind for kind in homes if kind != appliance and len(homes) > 1]
        if places and (not action or item in rules.actions[action]):
            chances[item] = places
    is_lit = task_type == "look_at_obj_in_light"
    if not chances or (is_lit and not set(kinds) & set(_LAMP_HOMES)):
        return None
    item = rng.choice(sorted(chances))
    if is_lit:
        return Goal(task_type=task_type, item=item, lamp=LAMP)
    return Goal(task_type=task_type, item=item, place=rng.choice(chances[item]))


def _needed(rng: random.Random, goal: Goal, rules: Rules, kinds: Sequence[str]) -> list[str]:
    """Return the kinds of receptacle that the task cannot do without; no kind twice."""
    homes = sorted((set(rules.homes(goal.item)) & set(kinds)) - {goal.place})
    needed = {rng.choice(homes): None}
    if goal.lamp:
        needed[rng.choice(sorted(set(kinds) & set(_LAMP_HOMES)))] = None
    else:
        needed[goal.place] = None
    if goal.task_type in APPLIANCES:
        needed[APPLIANCES[goal.task_type][1]] = None
    return list(needed)


class _Stock:
    """The receptacles that a floor plan offers, each at a spot of its own."""

    def __init__(self, rng: random.Random, *, scene: Scene, rules: Rules) -> None:
        self._rng, self._rules = rng, rules
        self._taken: set[str] = set()
        self._offered = [
            Place(kind=kind, name=name, location=self._spot(*point))
            for kind, name, point in scene.receptacles
        ]
        laid_out = {place.kind for place in self._offered}
        for kind in sorted((set(scene.objects) & set(rules.holds)) - laid_out):
            count = _BURNERS if kind == "StoveBurner" else 1
            self._offered += [self._invented(kind) for _ in range(count)]
        self.kinds = tuple(sorted({place.kind for place in self._offered}))

    def places(self, needed: Sequence[str], size: RoomSize) -> tuple[Place, ...]:
        """Return as many receptacles as the size asks for, with one of each needed kind."""
        count = self._rng.randint(*size.num_receptacles)
        left = self._rng.sample(self._offered, len(self._offered))
        chosen = [next(place for place in left if place.kind == kind) for kind in needed]
        num_openable = sum(self._is_openable(place) for place in chosen)
        for place in left:
            if len(chosen) >= count:
                break
            fits = not self._is_openable(place) or num_openable < size.max_openable
            if place not in chosen and fits:
                chosen.append(place)
                num_openable += self._is_openable(place)
        fillers = [kind for kind in _FILLERS if kind in self.kinds] or ["Shelf"]
        while len(chosen) < count:
            chosen.append(self._invented(self._rng.choice(fillers)))
        return tuple(sorted(chosen, key=lambda place: place.name))

    def free_spot(self) -> str:
        """Return a location where nothing stands."""
        return self._spot(*self._somewhere())

    def _is_openable(self, place: Place) -> bool:
        return place.kind in self._rules.openable

    def _invented(self, kind: str) -> Place:
        return Place(
            kind=kind, name=_name(self._rng, kind), location=self._spot(*self._somewhere())
        )

    def _somewhere(self) -> tuple[float, float, int, int]:
        rng = self._rng
        return rng.uniform(-3, 3), rng.uniform(-3, 3), 90 * rng.randrange(4), 30

    def _spot(self, x: float, z: float, rotation: float, horizon: float) -> str:
        """Return the location's name; one further on where somebody stands already."""
        column = round(x / _GRID)
        while (
            spot := f"loc|{column}|{round(z / _GRID)}|{round(rotation / 90)}|{horizon:.0f}"
        ) in self._taken:
            column += 1
        self._taken.add(spot)
        return spot


class _Items:
    """What lies in the room."""

    def __init__(
        self, rng: random.Random, *, rules: Rules, goal: Goal, places: Sequence[Place]
    ) -> None:
        self._rng, self._rules, self._goal, self._places = rng, rules, goal, places
        self.items: list[Item] = []

    def put_those_of_the_task(self) -> None:
        """Put the thing asked for, both if two are, and the lamp."""
        goal = self._goal
        for _ in range(2 if goal.task_type == "pick_two_obj_and_place" else 1):
            self._put(goal.item, self._homes(goal.item))
        if goal.lamp:
            self._put(goal.lamp, [place for place in self._places if place.kind in _LAMP_HOMES])

    def fill(self, kinds: Iterable[str], *, count: int) -> None:
        """Add things of the floor plan's kinds until there are so many."""
        homes = {kind: found for kind in kinds if (found := self._homes(kind))}
        counts = Counter(item.kind for item in self.items)
        most = max(_MOST_OF_A_KIND, -(-count // len(homes)) + 1)
        while len(self.items) < count:
            kind = self._rng.choice([kind for kind in homes if counts[kind] < most])
            self._put(kind, homes[kind])
            counts[kind] += 1

    def _put(self, kind: str, places: Sequence[Place]) -> None:
        place = self._rng.choice(places)
        self.items.append(Item(kind=kind, name=_name(self._rng, kind), place=place))

    def _homes(self, kind: str) -> list[Place]:
        """Return where it may lie: what is asked for lies nowhere that it should go to."""
        taboo = self._goal.place if kind == self._goal.item else ""
        return [
            place
            for place in self._places
            if kind in self._rules.holds[place.kind] and place.kind != taboo
        ]


def _name(rng: random.Random, kind: str) -> str:
    """Return a name as the simulator writes it: the kind and a point of the room."""
    x, y, z = rng.uniform(-3, 3), rng.uniform(0.1, 2), rng.uniform(-3, 3)
    owner, part = (kind.removesuffix("Basin"), f"|{kind}") if kind.endswith("Basin") else (kind, "")
    return f"{owner}|{x:+06.2f}|{y:+06.2f}|{z:+06.2f}{part}"
