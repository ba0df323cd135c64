"""The published games of a data folder: which there are, and which may be played.

    root/json_2.1.1/<split>/<task type>-<object>-<...>-<scene>/trial_<...>/game.tw-pddl

There are 6,374 folders of training games, of which 3,553 may be played.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "DATA_VERSION",
    "GAME_FILE",
    "PUBLISHED_COUNTS",
    "SPLITS",
    "TASK_TYPES",
    "playable_games",
    "read_json",
    "rows",
    "task_type_of",
]

DATA_VERSION = "json_2.1.1"
GAME_FILE = "game.tw-pddl"
PUBLISHED_COUNTS = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
SPLITS = tuple(PUBLISHED_COUNTS)
TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
_TRAJECTORY = "traj_data.json"
_LEFT_OUT = ("movable", "Sliced")  # in the path: games of kinds that text cannot play


def rows(root: str | Path, split: str) -> list[dict[str, str]]:
    """Return the rows of a split, sorted: ``{"game_file": path below root, "target": ""}``.

    Raises:
        DataError: the folder of the split is missing, or holds no game that may be played.
    """
    root = Path(root)
    games = playable_games(root, split)
    if not games:
        raise DataError(
            f"{root / DATA_VERSION / split} holds no game that may be played. Fetch the games with "
            f"trinity plugins setup alfworld, or invent some with --generate 200."
        )
    return [{"game_file": game.relative_to(root).as_posix(), "target": ""} for game in games]


def playable_games(root: str | Path, split: str) -> list[Path]:
    """Return the game files of a split by the published rule, sorted.

    There is a trajectory beside the game; it is of one of the six task types; the path names
    neither a movable receptacle nor a slice; and the game is marked solvable.
    """
    folder = Path(root) / DATA_VERSION / split
    return sorted(path for path in _candidates(folder) if _may_be_played(path))


def task_type_of(game_file: str | Path) -> str:
    """Return the task type that the path of a game names; ``other`` where it names none.

    >>> task_type_of("train/pick_two_obj_and_place-Mug-None-Desk-301/trial_T1/game.tw-pddl")
    'pick_two_obj_and_place'
    """
    for part in reversed(Path(game_file).parts[:-1]):
        name = part.partition("-")[0]
        if name in TASK_TYPES:
            return name
    return "other"


def _candidates(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        if _TRAJECTORY in names and GAME_FILE in names:
            inside = Path(place).relative_to(folder).as_posix()
            if not any(word in inside for word in _LEFT_OUT):
                yield Path(place) / GAME_FILE


def _may_be_played(game_file: Path) -> bool:
    task_type = _json_of(game_file.with_name(_TRAJECTORY)).get("task_type")
    return task_type in TASK_TYPES and _json_of(game_file).get("solvable") is True


def read_json(path: Path) -> Any:  # Any: what the file holds
    """Return what a file of JSON holds.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON, or nested without an end.
    """
    try:
        return json.loads(path.read_bytes())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _json_of(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read: {error}. Fetch it again: trinity plugins setup alfworld"
        ) from error
    return found if isinstance(found, dict) else {}
