"""The rules of the games as records, read from the installed package by a child process."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from trinity.common.workflows.env_process import EnvProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ROOMS", "WORKER", "LayoutPoint", "Rules", "Scene"]

ROOMS = ("Kitchen", "LivingRoom", "Bedroom", "Bathroom")
WORKER = "trinity_envs_alfworld.worker_rules:RulesWorker"


class LayoutPoint(NamedTuple):
    """A receptacle of a floor plan, and where one stands to use it."""

    kind: str
    name: str  # as the simulator wrote it, "Cabinet|+00.68|+00.50|-02.20"
    point: tuple[float, ...]  # x and z in metres, rotation and horizon in degrees


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """A floor plan: what stands in it, and which kinds of thing lie about in it."""

    room: str  # Kitchen, LivingRoom, Bedroom or Bathroom
    is_held_out: bool  # one of the rooms that training never sees
    receptacles: tuple[LayoutPoint, ...]
    objects: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """What holds what, what can be done to what, the tasks and the 120 floor plans."""

    holds: Mapping[str, tuple[str, ...]]  # kinds of object, by the kind of receptacle
    openable: frozenset[str]
    movable: frozenset[str]  # objects that are receptacles themselves
    actions: Mapping[str, frozenset[str]]  # "Heatable" and so on -> kinds of object
    goals: Mapping[str, tuple[str, tuple[str, ...]]]  # task type -> goal, sentences
    room_kinds: Mapping[str, tuple[str, ...]]  # task type -> rooms where it is played
    scenes: Mapping[int, Scene]
    domain: str
    grammar: str

    @classmethod
    def read(cls) -> Rules:
        """Return the rules of the installed package, from a child process that then ends.

        Raises:
            PluginError: alfworld is not installed.
        """
        with closing(EnvProcess(WORKER)) as child:
            return cls.of(child.call("rules"))

    @classmethod
    def of(cls, tables: Mapping[str, Any]) -> Rules:  # Any: plain data of RulesWorker.rules
        """Return the rules of the worker's tables."""
        return cls(
            holds={kind: tuple(held) for kind, held in tables["holds"].items()},
            openable=frozenset(tables["openable"]),
            movable=frozenset(tables["movable"]),
            actions={name: frozenset(kinds) for name, kinds in tables["actions"].items()},
            goals={name: (goal, tuple(said)) for name, (goal, said) in tables["goals"].items()},
            room_kinds={name: tuple(rooms) for name, rooms in tables["room_kinds"].items()},
            scenes={number: _scene(scene) for number, scene in tables["scenes"].items()},
            domain=tables["domain"],
            grammar=tables["grammar"],
        )

    def homes(self, kind: str) -> list[str]:
        """Return the kinds of receptacle that may hold a kind of object."""
        return [receptacle for receptacle, held in self.holds.items() if kind in held]


def _scene(tables: Mapping[str, Any]) -> Scene:  # Any: plain data
    points = [LayoutPoint(kind, name, tuple(at)) for kind, name, at in tables["receptacles"]]
    return Scene(
        room=tables["room"],
        is_held_out=tables["is_held_out"],
        receptacles=tuple(points),
        objects=tuple(tables["objects"]),
    )
