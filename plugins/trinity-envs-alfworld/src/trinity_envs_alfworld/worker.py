"""The engine of ALFWorld: the one module that imports alfworld and textworld.

It runs in a process of its own (``trinity.common.workflows.env_process``), one engine a process:
textworld is not thread-safe, and each of its environments copies and keeps a library of 34 MB.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity_envs_alfworld import caches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["AlfworldEngine"]

_DUMMY = "val1"  # the one thing in the translation of a game that cannot be won


class AlfworldEngine:
    """Plays one game after the other, in the published engine.

    Args:
        fast: keep translations and parsed texts; transcripts are the same without.
    """

    def __init__(self, *, fast: bool = True) -> None:
        with _data_folder_left_alone():
            from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld import EnvInfos
        from textworld.envs.pddl import PddlEnv

        plain = PddlEnv(EnvInfos(won=True, admissible_commands=True))
        self._obstacle = _hasten(plain) if fast else ""
        self._env = AlfredDemangler(plain)

    def load(self, game: str | tuple[str, int] | Mapping[str, Any]) -> None:
        """Make this the game that ``reset`` begins.

        Args:
            game: the path of its file, alone or with the time of its last change, or what it holds.
        """
        if isinstance(game, tuple):
            game, _ = game
        if isinstance(game, str):
            game = json.loads(Path(game).read_bytes())
        try:
            self._env.load(game)
        except KeyError as error:
            if error.args == (_DUMMY,):
                raise ValueError("no commands can reach its goal") from error
            raise

    def reset(self) -> tuple[str, dict[str, Any]]:
        """Return the first text and ``info``, of the game from its beginning.

        ``obstacle`` of it says why the engine could not be made faster; empty: it is, or was not
        meant to be.
        """
        state = self._env.reset()
        return state.feedback, {**_info(state), "obstacle": self._obstacle}

    def step(self, command: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Return the text, the reward (1: that won the game, else 0), whether it is over, info.

        An unknown command is answered with "Nothing happens.".
        """
        state, score, is_done = self._env.step(command)
        return state.feedback, float(score), bool(is_done), _info(state)

    def close(self) -> None:
        """End the game."""
        self._env.close()


def _info(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"won": bool(state["won"]), "admissible_commands": list(state["admissible_commands"])}


def _hasten(env: Any) -> str:
    """Return why that cannot be done; empty: it is done."""
    from textworld.envs.pddl import logic, textgen

    problem = caches.obstacle(logic=logic, textgen=textgen)
    if not problem:
        caches.install(logic=logic, textgen=textgen)
        env.downward_lib.load_sas_replan = _ignored  # the planner's variant, which is not made
    return problem


def _ignored(_: bytes) -> None:
    """Take what nobody needs."""


@contextmanager
def _data_folder_left_alone() -> Iterator[None]:
    """Let alfworld, which makes a folder and sets a variable when it is imported, do neither."""
    before = os.environ.get("ALFWORLD_DATA")
    os.environ["ALFWORLD_DATA"] = tempfile.gettempdir()
    try:
        yield
    finally:
        del os.environ["ALFWORLD_DATA"]
        if before is not None:
            os.environ["ALFWORLD_DATA"] = before
