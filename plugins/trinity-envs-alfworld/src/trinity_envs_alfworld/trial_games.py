"""Give ``trinity plugins check`` real games to try the workflows with."""

from __future__ import annotations

from typing import Any

from trinity_envs_alfworld.folder import data_folder
from trinity_envs_alfworld.games import SPLITS, playable_games

__all__ = ["TrialGames"]

_ANSWERS = [
    "<think>I look around.</think><action>look</action>",
    "I do not know.",
    "<action>inventory</action>",
]


class TrialGames:
    """Reads as the fields of a task: two games of the data folder; none where there are none."""

    def __get__(self, workflow: object, owner: Any = None) -> dict[str, Any]:
        """Return what the kit makes its tasks of."""
        root = data_folder()
        games: list[str] = []
        for split in reversed(SPLITS):  # the smaller ones first
            if len(games) < 2:
                games += map(str, playable_games(root, split)[:2])
        if not games:
            return {}
        return {
            "raw_task": {"game_file": games[0], "target": ""},
            "other_raw_task": {"game_file": games[-1], "target": ""},
            "format_args": {"prompt_key": "game_file"},
            "workflow_args": {"max_env_steps": 4},
            "answers": _ANSWERS,
        }
