"""Find the data folder and a game in it."""

from __future__ import annotations

import errno
import os
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG

from trinity.errors import BadTaskError, DataError, EnvError

from trinity_envs_alfworld.games import DATA_VERSION, GAME_FILE, read_json
from trinity_envs_alfworld.limits import wrong_text

__all__ = ["DATA_VARIABLE", "check_named_folder", "data_folder", "found_game"]

DATA_VARIABLE = "ALFWORLD_DATA"
_DEFAULT = "~/.cache/alfworld"  # alfworld's own
_PARTS = ("pddl_domain", "grammar", "pddl_problem")
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_REMEDY = (
    "Fetch the games: trinity plugins setup alfworld. Or invent some: "
    "trinity plugins setup alfworld --generate 200"
)


def data_folder(given: str | Path | None = None) -> Path:
    """Return the folder that was given, else the one of ALFWORLD_DATA, else alfworld's own.

    It is absolute: a process that was started elsewhere finds the same one.
    """
    return Path(given or os.environ.get(DATA_VARIABLE) or _DEFAULT).expanduser().absolute()


def found_game(game_file: str | Path, *, data: str | Path | None = None) -> Path:
    """Return the file of a game that can be played, absolute.

    Args:
        game_file: its path, absolute or below the data folder; the folder of a game does as well.
        data: the data folder; None: see ``data_folder``.

    Raises:
        DataError: the data folder is none, so no game of it can be played.
        BadTaskError: this game is not there, no game, or marked as one that cannot be won.
        EnvError: its file cannot be read now.
    """
    root = data_folder(data)
    given = Path(game_file).expanduser()
    if not given.is_absolute():
        _check_folder(root, game=given)
    path = root / given
    if os.path.isdir(path):  # False, too, for a text that is too long for a path
        path /= GAME_FILE
    try:
        is_there = _is_there(path)
        problem = _problem(path, path.stat().st_mtime_ns) if is_there else _missing(given, root)
    except OSError as error:
        raise EnvError(f"{path} cannot be read ({error}).") from error
    if problem:
        raise BadTaskError(
            f"{path} cannot be played: {problem} Its runs have no reward, others go on."
        )
    return path


def check_named_folder(given: str | None) -> None:
    """Raise a ``DataError`` if the folder that was given, or ALFWORLD_DATA, is none.

    Where neither names one, the rows may hold absolute paths.
    """
    if (given or os.environ.get(DATA_VARIABLE)) and not data_folder(given).is_dir():
        raise _no_folder(data_folder(given))


def _check_folder(root: Path, *, game: Path) -> None:
    first = root / game.parts[0] if game.parts else root
    if not root.is_dir() or (game.parts[:1] == (DATA_VERSION,) and not first.is_dir()):
        raise _no_folder(root)


def _no_folder(root: Path) -> DataError:
    return DataError(
        f"{root} is no folder with ALFWorld's games; {DATA_VARIABLE} names it. {_REMEDY}"
    )


def _is_there(path: Path) -> bool:
    """Return whether there is such a file.

    Raises:
        OSError: nobody can say now.
    """
    try:
        return S_ISREG(path.stat().st_mode)
    except ValueError:
        return False
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return False


def _missing(given: Path, root: Path) -> str:
    below = f" A relative path begins below {DATA_VARIABLE}, which is {root}."
    return (
        f"there is no such file.{'' if given.is_absolute() else below} Correct the path, or make "
        f"the dataset anew with get_alfworld_data.py."
    )


@lru_cache(maxsize=4096)
def _problem(path: Path, changed_ns: int) -> str:
    """Return why the file holds no game to play; found once for each state of the file.

    Raises:
        OSError: it cannot be read; that is not remembered.
    """
    try:
        game: object = read_json(path)
    except ValueError as error:
        return f"it is no game of ALFWorld ({error}). {_REMEDY}."
    lacking = [name for name in _PARTS if not isinstance(game, dict) or not game.get(name)]
    if lacking or not isinstance(game, dict):
        return (
            f"it is no game of ALFWorld, it has no {' and no '.join(lacking)}. A game is a file "
            f"named {GAME_FILE}. {_REMEDY}."
        )
    wrong = next(((name, how) for name in _PARTS if (how := wrong_text(game[name]))), None)
    if wrong:
        return f"its {wrong[0]} {wrong[1]}. {_REMEDY}."
    if game.get("solvable") is False:
        return (
            "it is marked as not solvable. The published selection leaves it out; make the dataset "
            "with get_alfworld_data.py."
        )
    return ""
