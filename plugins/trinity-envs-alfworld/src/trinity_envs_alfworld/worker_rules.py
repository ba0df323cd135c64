"""The child process of the generator: the package's rule tables, and games played to be proved.

Everything here runs in a process of its own (`trinity.common.workflows.env_process`): importing
alfworld sets variables and makes a folder, and textworld is not safe beside other threads.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from trinity_envs_alfworld.worker import AlfworldEngine

__all__ = ["RulesWorker"]


class RulesWorker:
    """The rules of the games, and the real engine to play them; made by ``EnvProcess``."""

    def __init__(self) -> None:
        self._engine = AlfworldEngine()

    def rules(self) -> dict[str, Any]:
        """Return the tables as plain data; every set is a sorted list."""
        from alfworld.gen import constants
        from alfworld.gen.goal_library import gdict

        held = constants.VAL_RECEPTACLE_OBJECTS
        movable = constants.MOVABLE_RECEPTACLES_SET
        texts = resources.files("alfworld") / "data"
        goals = constants.GOALS_VALID.items()
        return {
            "holds": {kind: sorted(held[kind]) for kind in sorted(held) if kind not in movable},
            "movable": sorted(movable),
            "openable": sorted(constants.OPENABLE_CLASS_SET),
            "actions": {name: sorted(v) for name, v in constants.VAL_ACTION_OBJECTS.items()},
            "goals": {name: (gdict[name]["pddl"], gdict[name]["templates"]) for name, _ in goals},
            "room_kinds": {name: sorted(rooms) for name, rooms in goals},
            "scenes": _scenes(constants),
            "domain": (texts / "alfred.pddl").read_text(),
            "grammar": (texts / "alfred.twl2").read_text(),
        }

    def play(self, game: dict[str, Any], commands: list[str]) -> dict[str, Any]:
        """Return what the engine said, at first and to each command, and how that ended.

        Args:
            game: the content of a game file.
            commands: played until one is refused or the game is won.
        """
        self._engine.load(game)
        text, info = self._engine.reset()
        texts, reward = [text], 0.0
        for command in commands:
            if info["won"] or command not in info["admissible_commands"]:
                break
            text, reward, _, info = self._engine.step(command)
            texts.append(text)
        return {"texts": texts, "won": info["won"], "reward": reward}


def _scenes(constants: Any) -> dict[int, dict[str, Any]]:  # Any: a module of alfworld
    layouts = resources.files("alfworld.gen") / "layouts"
    scenes = {}
    for room, numbers in constants.SCENE_TYPE.items():
        for number in numbers:
            stem = f"FloorPlan{number}"
            points = json.loads((layouts / f"{stem}-openable.json").read_text())
            scenes[number] = {
                "room": room,
                "is_held_out": number in constants.TEST_SCENE_NUMBERS,
                "receptacles": sorted((_kind(name), name, point) for name, point in points.items()),
                "objects": sorted(json.loads((layouts / f"{stem}-objects.json").read_text())),
            }
    return scenes


def _kind(name: str) -> str:
    """Return the kind by which the engine names it: one bathtub's basin is called a SinkBasin."""
    parts = name.split("|")
    return f"{parts[0]}Basin" if parts[-1].endswith("Basin") else parts[0]
