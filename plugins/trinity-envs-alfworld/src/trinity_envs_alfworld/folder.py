"""Find the data folder and a game in it."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path

from trinity.errors import DataError

from trinity_envs_alfworld.games import GAME_FILE

__all__ = ["DATA_VARIABLE", "data_folder", "found_game"]

DATA_VARIABLE = "ALFWORLD_DATA"
_DEFAULT = "~/.cache/alfworld"  # alfworld's own
_PARTS = ("pddl_domain", "grammar", "pddl_problem")
_REMEDY = (
    "Fetch the games: trinity plugins setup alfworld. Or invent some: "
    "trinity plugins setup alfworld --generate 200"
)


def data_folder(given: str | Path | None = None) -> Path:
    """Return the folder that was given, else the one of ALFWORLD_DATA, else alfworld's own."""
    return Path(given or os.environ.get(DATA_VARIABLE) or _DEFAULT).expanduser()


def found_game(game_file: str | Path, *, data: str | Path | None = None) -> Path:
    """Return the file of a game that can be played.

    Args:
        game_file: its path, absolute or below the data folder; the folder of a game does as well.
        data: the data folder; None: see ``data_folder``.

    Raises:
        DataError: it is not there, no game, or marked as one that cannot be won.
    """
    root = data_folder(data)
    path = root / Path(game_file).expanduser()
    if path.is_dir():
        path /= GAME_FILE
    if not path.is_file():
        raise DataError(_missing(path, root=root))
    _check(path, path.stat().st_mtime_ns)
    return path


def _missing(path: Path, *, root: Path) -> str:
    if not root.is_dir() and path.is_relative_to(root):
        return f"{root} is no folder with ALFWorld's games; {DATA_VARIABLE} names it. {_REMEDY}"
    return (
        f"there is no game {path}. A relative path begins below {DATA_VARIABLE}, which is {root}. "
        f"Correct it, or make the dataset anew with get_alfworld_data.py."
    )


@lru_cache(maxsize=4096)
def _check(path: Path, changed_ns: int) -> None:
    """Raise unless the file holds a game; once for each state of the file."""
    try:
        game: object = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no game of ALFWorld: {error}. {_REMEDY}") from error
    lacking = [name for name in _PARTS if not isinstance(game, dict) or not game.get(name)]
    if lacking or not isinstance(game, dict):
        raise DataError(
            f"{path} is no game of ALFWorld: it has no {' and no '.join(lacking)}. A game is a "
            f"file named {GAME_FILE}. {_REMEDY}"
        )
    if game.get("solvable") is False:
        raise DataError(
            f"{path} cannot be won: it is marked as not solvable. The published selection leaves "
            f"it out; make the dataset with get_alfworld_data.py."
        )
