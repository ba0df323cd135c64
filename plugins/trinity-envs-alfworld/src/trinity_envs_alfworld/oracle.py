"""Know what to do next: what demonstrations are made of.

One player follows the walkthrough of the game's file; it goes straight to what it has not seen yet,
which nobody could learn. The other searches, by what it was shown, as a model has to.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trinity.errors import DataError

from trinity_envs_alfworld.games import read_json
from trinity_envs_alfworld.generate_things import APPLIANCES, Goal
from trinity_envs_alfworld.prompt import (
    AlfWORLD_SYSTEM_PROMPT,
    format_observation,
    parse_action,
)

if TYPE_CHECKING:
    from trinity_envs_alfworld.env import AlfworldEnv

__all__ = [
    "Conversation",
    "Player",
    "SearchingPlayer",
    "WalkthroughPlayer",
    "conversation",
    "goal_of",
    "walkthrough_of",
]

_THING = re.compile(r"\b([a-z]+ \d+)\b")
_COMMANDS = "\n\nAdmissible commands:\n"


class Player(Protocol):
    """Somebody who plays one game."""

    def reply(self, observation: str) -> str:
        """Return the reply to an observation as the workflow shows it."""


class Conversation(NamedTuple):
    """A whole game."""

    messages: list[dict[str, str]]  # system, then user and assistant in turn
    reward: float  # 1: won
    num_steps: int


def conversation(env: AlfworldEnv, player: Player, *, max_steps: int = 30) -> Conversation:
    """Return a game as the workflow would put it to a model, with the player in its place.

    Args:
        env: is begun anew, and not closed.
        player: of this game.
        max_steps: the most replies.
    """
    observation, _ = env.reset()
    messages = [{"role": "system", "content": AlfWORLD_SYSTEM_PROMPT}]
    reward, is_done, num_steps = 0.0, False, 0
    while not is_done and num_steps < max_steps:
        reply = player.reply(observation)
        messages += [
            {"role": "user", "content": format_observation(observation)},
            {"role": "assistant", "content": reply},
        ]
        observation, reward, is_done, _ = env.step(parse_action(reply))
        num_steps += 1
    return Conversation(messages, reward, num_steps)


def goal_of(game_file: str | Path) -> Goal:
    """Return the task of a game, from the ``traj_data.json`` beside it.

    Raises:
        DataError: there is none.
    """
    path = Path(game_file).with_name("traj_data.json")
    try:
        told = read_json(path)
        asked = told["pddl_params"]
        return Goal(
            task_type=told["task_type"],
            item=asked["object_target"],
            place=asked["parent_target"],
            lamp=asked["toggle_target"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} does not say what the task is ({error!r}). Fetch the games again: "
            f"trinity plugins setup alfworld"
        ) from error


def walkthrough_of(game_file: str | Path) -> list[str]:
    """Return the commands that win a game, from its file.

    Raises:
        DataError: it holds none.
    """
    try:
        return [str(command) for command in read_json(Path(game_file))["walkthrough"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{game_file} holds no walkthrough ({error!r}). Take a game that was generated, or a "
            f"SearchingPlayer."
        ) from error


class WalkthroughPlayer:
    """Says one command after the other."""

    def __init__(self, commands: list[str]) -> None:
        self._commands = iter(commands)

    def reply(self, observation: str) -> str:
        """Return the next command; ``look`` after the last one."""
        return f"<action>{next(self._commands, 'look')}</action>"


class SearchingPlayer:
    """Looks into one place after the other, as they are listed, and does the task on the way.

    It knows what it was shown and no more. Where the thing should go is looked into last.

    Args:
        goal: what is asked for.
    """

    def __init__(self, goal: Goal) -> None:
        self._item, self._lamp, self._target = goal.item.lower(), goal.lamp.lower(), goal.place
        verb, appliance, _ = APPLIANCES.get(goal.task_type, ("", "", ""))
        self._verb, self._appliance = verb, appliance.lower()
        self._target = self._target.lower()
        self._places: list[str] = []  # in the order of the list, those of the target's kind last
        self._visited: set[str] = set()
        self._found: dict[str, str] = {}  # thing -> where it was seen
        self._delivered: set[str] = set()
        self._here = self._held = self._goal_place = ""
        self._is_treated = False

    def reply(self, observation: str) -> str:
        """Return a thought and a command."""
        thought, command = self.turn(observation)
        return f"<think>{thought}</think>\n<action>{command}</action>"

    def turn(self, observation: str) -> tuple[str, str]:
        """Return what it thinks and the command that it gives."""
        text, _, listed = observation.partition(_COMMANDS)
        commands = listed.splitlines()
        self._look_at(text)
        thought, command = self._with_it(commands) if self._held else self._without(commands)
        self._note(command)
        return thought, command

    def _look_at(self, text: str) -> None:
        if not self._places:
            listed = _THING.findall(text.partition("Your task is to:")[0])
            self._places = sorted(listed, key=lambda place: _kind(place) == self._target)
        elif "you see" in text:
            for thing in _THING.findall(text.rpartition("you see")[2]):
                self._found[thing] = self._here

    def _without(self, commands: list[str]) -> tuple[str, str]:
        """Return what to do with empty hands: find the thing and take it."""
        for thing, place in self._found.items():
            if _kind(thing) != self._item or thing in self._delivered:
                continue
            if f"take {thing} from {place}" in commands:
                return f"There is the {thing}. I take it.", f"take {thing} from {place}"
            if place != self._here:
                return f"I saw the {thing} at the {place}.", f"go to {place}"
        return self._search(commands, self._item)

    def _with_it(self, commands: list[str]) -> tuple[str, str]:
        """Return what to do with the thing in hand."""
        if self._verb and not self._is_treated:
            return self._treat(commands)
        if self._lamp:
            return self._light(commands)
        return self._deliver(commands)

    def _treat(self, commands: list[str]) -> tuple[str, str]:
        treat = f"{self._verb} {self._held} with "
        for command in commands:
            if command.startswith(treat):
                return f"Now I {self._verb} the {self._held}.", command
        place = self._first(self._appliance)
        return f"I have to {self._verb} the {self._held} at the {place}.", f"go to {place}"

    def _light(self, commands: list[str]) -> tuple[str, str]:
        for thing, place in self._found.items():
            if _kind(thing) == self._lamp:
                if f"use {thing}" in commands:
                    return f"I turn on the {thing}.", f"use {thing}"
                return f"The {thing} is at the {place}.", f"go to {place}"
        return self._search(commands, self._lamp)

    def _deliver(self, commands: list[str]) -> tuple[str, str]:
        place = self._goal_place or self._first(self._target)
        if place != self._here:
            return f"I have the {self._held}. It goes to the {place}.", f"go to {place}"
        if f"open {place}" in commands:
            return f"The {place} is closed. I open it.", f"open {place}"
        return f"I put the {self._held} here.", f"move {self._held} to {place}"

    def _search(self, commands: list[str], kind: str) -> tuple[str, str]:
        if f"open {self._here}" in commands:
            return f"The {self._here} is closed. I open it.", f"open {self._here}"
        for place in self._places:
            if place not in self._visited:
                return f"I look for a {kind} at the {place}.", f"go to {place}"
        return f"I have seen no {kind}.", "look"

    def _first(self, kind: str) -> str:
        return next((place for place in self._places if _kind(place) == kind), kind)

    def _note(self, command: str) -> None:
        """Remember what the command does."""
        verb, _, rest = command.partition(" ")
        if verb == "go":
            self._here = rest.removeprefix("to ")
            self._visited.add(self._here)
        elif verb == "take":
            self._held = rest.partition(" from ")[0]
        elif verb == "move":
            self._goal_place = self._here
            self._delivered.add(self._held)
            self._held, self._is_treated = "", False
        elif self._verb and verb == self._verb:
            self._is_treated = True


def _kind(thing: str) -> str:
    return thing.partition(" ")[0]
