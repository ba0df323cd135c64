"""Who has a component or a published import path, and what stands for one that nobody has."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal, get_args

_ROOT = next(iter(Path(__file__).parents[5:6]), Path())  # of a clone
Table = Literal["components", "commands", "import_paths", "classes"]


def install_line(distribution: str) -> str:
    """Return the command that installs a distribution.

    >>> install_line("trinity-testing")
    'python -m pip install trinity-testing'
    """
    return f"python -m pip install {distribution}"


def how_to_get(distribution: str) -> str:
    """Return what to do for a distribution; one that does not exist yet is not to be installed."""
    planned = _tables()["planned"].get(distribution)
    if planned is None:
        folders = " ".join(f"-e {folder}" for folder in _folders(distribution))
        in_clone = f" (in a clone: {folders})" if folders else ""
        return f"Run: {install_line(distribution)}{in_clone}"
    return f"{distribution} does not exist yet; until then {planned}."


def _folders(distribution: str) -> list[str]:
    """Return its folder in the clone that this file is in, and those of what it needs; or none."""
    import tomllib

    found, waiting = dict[str, str](), [distribution]
    while waiting:
        name = re.split(r"[^\w-]", waiting.pop())[0]
        for place in () if name in found else (f"packages/{name}", f"plugins/{name}"):
            file = _ROOT / place / "pyproject.toml"
            if file.is_file():
                found[name] = place
                waiting += tomllib.loads(file.read_text("utf-8"))["project"]["dependencies"]
    found.pop("trinity-core", None)
    return list(found.values())


def distribution_of(table: Table, name: str) -> str | None:
    """Return which distribution of ours has what the table lists; None: none of ours has it."""
    return _tables()[table].get(name)


def distribution_of_component(kind: str, name: str) -> str | None:
    """Return which distribution of ours gives the component; None: none of ours does."""
    return distribution_of("components", f"{kind}/{name}")


def stand_in_of(name: str) -> str | None:
    """Return what stands for a ``"kind/name"`` or a module of Trinity-RFT that nobody here has."""
    return _tables()["instead"].get(name)


def known_paths() -> tuple[str, ...]:
    """Return all published import paths that a distribution of ours serves."""
    return tuple(_tables()["import_paths"])


def known_distributions() -> frozenset[str]:
    """Return the names of all distributions of ours that have something."""
    return frozenset(name for table in get_args(Table) for name in _tables()[table].values())


@cache
def _tables() -> dict[str, dict[str, str]]:
    import tomllib

    return tomllib.loads(Path(__file__).with_name("known_distributions.toml").read_text("utf-8"))
