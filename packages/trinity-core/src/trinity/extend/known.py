"""Who has a component or a published import path, and what stands for one that nobody has."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, get_args

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
        return f"Run: {install_line(distribution)}"
    return f"{distribution} does not exist yet; until then {planned}."


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
