"""Write a room down as the planning problem that the engine plays."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trinity_envs_alfworld.generate_things import LAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trinity_envs_alfworld.generate_rules import Rules
    from trinity_envs_alfworld.generate_things import Goal, Item, Room

__all__ = ["engine_names", "identifier", "problem"]

_SIGNS = {"-": "_minus_", "|": "_bar_", "+": "_plus_", ".": "_dot_"}
_RTYPES_OF_THE_DOMAIN = ("Fridge", "Microwave", "SinkBasin")  # it speaks of them in any room
_OTYPES_OF_THE_DOMAIN = ("ButterKnife", "Knife")


def identifier(name: str) -> str:
    """Return the name as a word of the planning language."""
    for sign, word in _SIGNS.items():
        name = name.replace(sign, word)
    return name


def engine_names(room: Room) -> Mapping[str, str]:
    """Return what the engine calls each thing, "cabinet 3", by its name in the room.

    It sorts the identifiers in small letters and numbers those of a kind from the last one on.
    """
    kinds = {thing.name: thing.kind for thing in room.places}
    kinds |= {thing.name: thing.kind for thing in room.items}
    called, counts = {}, Counter[str]()
    for name in sorted(kinds, key=lambda name: identifier(name).lower(), reverse=True):
        kind = kinds[name].lower()
        counts[kind] += 1
        called[name] = f"{kind} {counts[kind]}"
    return called


def problem(room: Room, *, rules: Rules, title: str) -> str:
    """Return the problem's text."""
    kinds = sorted({place.kind for place in room.places})
    item_kinds = sorted({item.kind for item in room.items})
    declared = [
        "agent1 - agent",
        *_declared("location", sorted({place.location for place in room.places} | {room.start})),
        *_declared("receptacle", [place.name for place in room.places]),
        *_declared("object", [item.name for item in room.items]),
        *_declared("rtype", _types(kinds, _RTYPES_OF_THE_DOMAIN)),
        *_declared("otype", _types([*item_kinds, *_asked(room.goal)], _OTYPES_OF_THE_DOMAIN)),
    ]
    facts = [
        "(= (total-cost) 0)",
        f"(atLocation agent1 {identifier(room.start)})",
        *_place_facts(room, rules),
        *(fact for item in room.items for fact in _item_facts(item, rules)),
        *(
            f"(canContain {kind}Type {held}Type)"
            for kind in kinds
            for held in item_kinds
            if held in rules.holds[kind]
        ),
    ]
    return (
        f"(define (problem {identifier(title)})\n(:domain alfred)\n"
        f"(:objects\n{_lines(declared)})\n(:init\n{_lines(facts)})\n"
        f"{_goal_text(room.goal, rules)}\n(:metric minimize (total-cost))\n)\n"
    )


def _asked(goal: Goal) -> tuple[str, ...]:
    return (goal.item, goal.lamp) if goal.lamp else (goal.item,)


def _goal_text(goal: Goal, rules: Rules) -> str:
    """Return the goal without its last bracket, which would close the whole problem."""
    text, _ = rules.goals[goal.task_type]
    filled = text.format(obj=goal.item, recep=goal.place, toggle=goal.lamp)
    return filled.replace("#", "-").strip().removesuffix(")").rstrip()


def _types(kinds: Iterable[str], always: Iterable[str]) -> list[str]:
    return [f"{kind}Type" for kind in sorted({*kinds, *always})]


def _declared(sort: str, names: Iterable[str]) -> list[str]:
    return [f"{identifier(name)} - {sort}" for name in names]


def _place_facts(room: Room, rules: Rules) -> list[str]:
    facts = []
    for place in room.places:
        name = identifier(place.name)
        facts.append(f"(receptacleType {name} {place.kind}Type)")
        facts.append(f"(receptacleAtLocation {name} {identifier(place.location)})")
        if place.kind in rules.openable:
            facts.append(f"(openable {name})")
    return facts


def _item_facts(item: Item, rules: Rules) -> list[str]:
    name, place = identifier(item.name), item.place
    facts = [
        f"(objectType {name} {item.kind}Type)",
        f"(inReceptacle {name} {identifier(place.name)})",
        f"(objectAtLocation {name} {identifier(place.location)})",
    ]
    if item.kind != LAMP:
        facts.append(f"(pickupable {name})")
    if item.kind in rules.movable:
        facts.append(f"(isReceptacleObject {name})")
    for action, kinds in sorted(rules.actions.items()):
        if item.kind in kinds:
            facts.append(f"({action.lower()} {name})")
    return facts


def _lines(parts: Iterable[str]) -> str:
    return "".join(f"    {part}\n" for part in parts)
