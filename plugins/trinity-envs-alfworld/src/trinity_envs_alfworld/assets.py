"""Check the games, and fetch or invent them."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trinity.errors import DataError, PluginError

from trinity_envs_alfworld.data_check import GENERATED, missing_engine, missing_games
from trinity_envs_alfworld.fetching import PUBLISHED_AT, download, holds_invented, take
from trinity_envs_alfworld.folder import data_folder
from trinity_envs_alfworld.games import DATA_VERSION

__all__ = ["fetch", "missing"]


def missing(*, data: str | None = None) -> str | None:
    """Return what is missing of the engine or the games; None: all is there.

    Args:
        data: the folder; else the one that ALFWORLD_DATA names, else ~/.cache/alfworld
    """
    return missing_engine() or missing_games(data_folder(data)) or None


def fetch(  # noqa: PLR0913 -- each is an option of trinity plugins setup
    *,
    data: str | None = None,
    from_: str | None = None,
    url: str = PUBLISHED_AT,
    generate: str | int | None = None,
    seed: str | int = 0,
    sizes: str = "",
    task_types: str = "",
    rooms: str = "",
) -> None:
    """Fetch the games, or take them from files, or invent them; then check that they are whole.

    Args:
        data: the folder; else the one that ALFWORLD_DATA names, else ~/.cache/alfworld
        from_: an archive, or a folder with the archives or with json_2.1.1; nothing is fetched
        url: where the archives are fetched from
        generate: how many games to invent, each won once in the real engine; nothing is fetched
        seed: of the invented games
        sizes: of the invented rooms: tiny, small (the default), medium, large, or several
        task_types: of the invented games, such as pick_and_place_simple; else all six
        rooms: that are invented, such as Kitchen,Bathroom; else all four

    Raises:
        DataError: it cannot be had, or is not whole.
        PluginError: the engine is not installed.
    """
    root = data_folder(data)
    chosen = {"sizes": sizes, "task_types": task_types, "rooms": rooms}
    given = {name: _words(text) for name, text in chosen.items() if text}
    _refuse_pairs(from_=from_, generate=generate, of_generate=[*given, *(["seed"] if seed else [])])
    if from_ is None and generate is None and not missing_games(root):
        return
    try:
        if from_ is not None:
            source = Path(from_).expanduser()
            if not holds_invented(source):
                _refuse_invented(root)
            take(source, root)
        elif generate is not None:
            _invent(root, generate=generate, seed=seed, chosen=given)
        else:
            _refuse_invented(root)
            download(root, url=url)
        _add_logic(root)
    except OSError as error:
        raise DataError(
            f"{root} cannot be written: {error}. Give a folder with --data, or with ALFWORLD_DATA."
        ) from error
    problem = missing_games(root)
    if problem:
        raise DataError(
            f"{problem}. Run the command again, from other archives if these are not the published "
            f"ones; delete {root / DATA_VERSION} first if it holds games of somewhere else."
        )


def _refuse_pairs(*, from_: str | None, generate: str | int | None, of_generate: list[str]) -> None:
    if from_ is not None and generate is not None:
        raise DataError("--from takes games and --generate invents some. Give one of the two.")
    if generate is None and of_generate:
        name = of_generate[0].replace("_", "-")
        raise DataError(f"--{name} is of the games that --generate invents. Add --generate 200.")


def _refuse_invented(root: Path) -> None:
    """Refuse to put published games among those that were invented."""
    if (root / GENERATED).exists():
        raise DataError(
            f"{root} holds invented games, which the published ones would be mixed with. Give "
            f"another folder with --data, or invent more with --generate."
        )


def _invent(
    root: Path, *, generate: str | int, seed: str | int, chosen: dict[str, Any]
) -> None:  # Any: each option of write_games has its own type
    from trinity_envs_alfworld.generate_write import write_games

    problem = missing_engine()
    if problem:
        raise PluginError(f"games are invented with ALFWorld's engine, which lacks {problem}")
    write_games(
        root,
        count=_number("--generate", generate, least=1),
        seed=_number("--seed", seed, least=0),
        **chosen,
    )


def _add_logic(root: Path) -> None:
    """Copy the rules of the package beside the games, as alfworld-download does."""
    spec = find_spec("alfworld")
    if spec is None or spec.origin is None:
        return
    for name in ("alfred.pddl", "alfred.twl2"):
        if not (root / "logic" / name).exists():
            (root / "logic").mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(spec.origin).parent / "data" / name, root / "logic" / name)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _number(option: str, given: str | int, *, least: int) -> int:
    try:
        number = int(given)
    except ValueError:
        number = least - 1
    if number < least:
        raise DataError(f"{option} is {given!r}. Give a whole number, {least} or more.")
    return number
