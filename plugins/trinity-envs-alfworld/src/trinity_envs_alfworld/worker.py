"""The engine of ALFWorld: the one module that imports alfworld and textworld.

It runs in a process of its own (``trinity.common.workflows.env_process``), one engine a process:
textworld is not thread-safe, and each of its environments copies and keeps a library of 34 MB.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.errors import BadTaskError

from trinity_envs_alfworld import caches, expressions, limits
from trinity_envs_alfworld.games import read_json
from trinity_envs_alfworld.translations import GameFile, Translation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

__all__ = ["AlfworldEngine"]

_WON = "its goal is true before the first command: there is nothing to do"
_DUMMY = "val1"  # the one thing in the translation of a game whose goal is always or never true


class AlfworldEngine:
    """Plays one game after the other, in the published engine.

    Args:
        fast: keep translations and parsed texts; transcripts are the same without.
    """

    def __init__(self, *, fast: bool = True) -> None:
        with _data_folder_left_alone():
            from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld import EnvInfos
        from textworld.envs.pddl import PddlEnv, logic, textgen

        expressions.install(textgen)
        limits.install(textgen, logic)
        self._textgen = textgen
        self._plain = plain = PddlEnv(EnvInfos(won=True, admissible_commands=True))
        self._obstacle, self._translator = _hasten(plain) if fast else ("", None)
        self._env = AlfredDemangler(plain)
        self._problem = ("", "")

    def load(self, game: GameFile | Mapping[str, Any]) -> None:
        """Make this the game that ``reset`` begins.

        Args:
            game: its file, with its translation if there is one, or what it holds.

        Raises:
            BadTaskError: the engine cannot play it, now or later.
        """
        content = game if not isinstance(game, GameFile) else _content(game)
        if self._translator is not None:
            self._translator.given = game.translation if isinstance(game, GameFile) else None
        try:
            self._env.load(content)
            expressions.check_texts(self._textgen, self._templates())
        except (ImportError, OSError, MemoryError, BadTaskError):  # not of the game, or said
            raise
        except (Exception, SystemExit) as error:  # whatever upstream says of a text it cannot read
            raise BadTaskError(self._why_not(error)) from error
        if self._plain.downward_lib.check_goal():
            raise BadTaskError(_WON)
        self._problem = content["pddl_domain"], content["pddl_problem"]

    def _why_not(self, error: BaseException) -> str:
        if isinstance(error, KeyError) and error.args == (_DUMMY,):
            if self._plain.downward_lib.check_goal():
                return _WON
            return "no commands can reach its goal"
        return f"the engine cannot read it ({type(error).__name__}: {error!s:.500})"

    def _templates(self) -> Iterator[str]:
        for action in self._plain._logic.actions.values():
            yield from (action.template, action.feedback_rule)

    def translation(self) -> Translation | None:
        """Return what spares another process most of loading this game; None where nothing can."""
        return self._translator.translation(*self._problem) if self._translator else None

    def reset(self) -> tuple[str, dict[str, Any]]:
        """Return the first text and ``info``, of the game from its beginning.

        ``obstacle`` of it says why the engine could not be made faster; empty: it is, or was not
        meant to be.
        """
        state = self._env.reset()
        return state.feedback, {**_shown(state), "obstacle": self._obstacle}

    def step(self, command: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Return the text, the reward (1: that won the game, else 0), whether it is over, info.

        An unknown command is answered with "Nothing happens.".
        """
        state, score, is_done = self._env.step(command)
        return state.feedback, float(score), bool(is_done), _shown(state)

    def close(self) -> None:
        """End the game."""
        self._env.close()


def _shown(state: Any) -> dict[str, Any]:  # Any: a GameState
    """Return ``info`` of a state that can be shown to a model."""
    commands = list(state["admissible_commands"])
    limits.check_observation(state.feedback, commands)
    return {"won": bool(state["won"]), "admissible_commands": commands}


def _content(game: GameFile) -> Mapping[str, Any]:
    content: Mapping[str, Any] = read_json(Path(game.path))
    return content


def _hasten(env: Any) -> tuple[str, caches.Translator | None]:
    """Return why that cannot be done, or, after an empty text, what translates from now on."""
    from textworld.envs.pddl import logic, textgen

    try:
        translate = _translator_of(logic.fast_downward)
        modules = {"logic": logic, "textgen": textgen, "translate": translate}
    except (AttributeError, ImportError) as error:
        return str(error), None
    problem = caches.obstacle(**modules)
    if problem:
        return problem, None
    env.downward_lib.load_sas_replan = _ignored  # the planner's variant, which is not made
    return "", caches.install(**modules)


def _translator_of(planner: ModuleType) -> ModuleType:
    """Return a module of textworld's planner, whose options are read when it is imported."""
    before = sys.argv
    sys.argv = ["translate.py", "domain", "task"]
    try:
        return import_module(f"{planner.__name__}.translate.translate")
    finally:
        sys.argv = before


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
