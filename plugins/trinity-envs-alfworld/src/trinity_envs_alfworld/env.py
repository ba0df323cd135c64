"""A game that is played in a process of its own."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from trinity.common.workflows.env_pool import shared_pool

from trinity_envs_alfworld.failures import as_clear_error
from trinity_envs_alfworld.folder import found_game
from trinity_envs_alfworld.games import task_type_of
from trinity_envs_alfworld.prompt import observation_with_commands
from trinity_envs_alfworld.translations import GameFile, SharedTranslations

if TYPE_CHECKING:
    from pathlib import Path

    from trinity.common.workflows.env_pool import EnvLease

__all__ = ["ENGINE", "TIMEOUTS", "AlfworldEnv", "create_environment"]

ENGINE = "trinity_envs_alfworld.worker:AlfworldEngine"
TIMEOUTS = {"load": 120.0, "reset": 60.0, "step": 30.0}  # seconds
_SHOWN = 100  # characters of an action, in a message: a model may have written pages
_log = logging.getLogger("trinity.alfworld")
_translations = SharedTranslations()


class AlfworldEnv:
    """One game, for one run after the other; ``reset`` begins it anew.

    Attributes:
        game_file: the file of the game.
        task_type: one of the six, as the path says; ``other`` where it says none.
        won: whether the game was won since the last ``reset``.
    """

    def __init__(self, lease: EnvLease, game_file: Path) -> None:
        self._lease = lease
        self.game_file = game_file
        self.task_type = task_type_of(game_file)
        self.won = False

    def reset(self) -> tuple[str, dict[str, Any]]:
        """Return the first observation, with the admissible commands, and ``info``.

        Raises:
            EnvError: the engine failed; other runs go on.
        """
        with as_clear_error(f"reset of {self.game_file}"):
            text, info = self._lease.reset()
        if info.get("obstacle"):
            _say_once(info["obstacle"])
        self.won = False
        return observation_with_commands(text, info["admissible_commands"]), info

    def step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Return the observation, the reward (1 where that won the game), whether it is over, info.

        What is no admissible command is answered with "Nothing happens.", and costs the step.

        Raises:
            EnvError: the engine failed; other runs go on.
        """
        shown = repr(action if len(action) <= _SHOWN else f"{action[:_SHOWN]}...")
        with as_clear_error(f"step {shown} of {self.game_file}"):
            text, reward, is_done, info = self._lease.step(action)
        self.won = info["won"]
        seen = observation_with_commands(text, info["admissible_commands"])
        return seen, reward, is_done, info

    def close(self) -> None:
        """Give the process back, for the next run; safe to call twice."""
        self._lease.close()


@cache
def _say_once(obstacle: str) -> None:
    _log.warning(
        "This textworld is not the one that ALFWorld's engine is made faster for (%s): it plays "
        "the same, ten times as slowly. Install textworld>=1.7,<1.8, or set fast: false.",
        obstacle,
    )


def create_environment(
    game_file: str | Path, *, data: str | Path | None = None, fast: bool = True
) -> AlfworldEnv:
    """Return the environment of a game.

    Args:
        game_file: its path, absolute or below the data folder.
        data: the data folder; None: the one that ALFWORLD_DATA names.
        fast: keep translations and parsed texts, translations for all processes.

    Raises:
        DataError: the data folder is none.
        PluginError: alfworld or textworld are not installed.
        BadTaskError: the file is missing, no game, or a game that cannot be won or loaded; other
            games can be played.
        EnvError: the engine failed; another time it may not.
    """
    path = found_game(game_file, data=data)
    with as_clear_error(f"load of {path}"):
        pool = shared_pool(ENGINE, arguments={"fast": fast}, timeouts=TIMEOUTS)
        game = GameFile(str(path), path.stat().st_mtime_ns)  # changed: loaded anew
        lease = _translations.lease(pool, game) if fast else pool.lease(game)
    return AlfworldEnv(lease, path)
