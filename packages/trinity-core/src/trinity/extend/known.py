"""Who has a component or a published import path, and what stands for one that nobody has."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = [
    "distribution_of_class",
    "distribution_of_command",
    "distribution_of_component",
    "distribution_of_path",
    "how_to_get",
    "install_line",
    "known_distributions",
    "known_paths",
    "stand_in_of_component",
    "stand_in_of_path",
]


def install_line(distribution: str) -> str:
    """Return the command that installs a distribution.

    >>> install_line("trinity-testing")
    'python -m pip install trinity-testing'
    """
    return f"python -m pip install {distribution}"


def how_to_get(distribution: str) -> str:
    """Return what to do for a distribution; one that does not exist yet is not to be installed."""
    planned = _tables().get("planned", {}).get(distribution)
    if planned is None:
        return f"Run: {install_line(distribution)}"
    return f"{distribution} does not exist yet; until then {planned}."


def stand_in_of_component(kind: str, name: str) -> str | None:
    """Return what to use for a name that exists in Trinity-RFT alone; None: nothing is known."""
    return _tables().get("instead", {}).get(f"{kind}/{name}")


def stand_in_of_path(path: str) -> str | None:
    """Return what to import for a published path that nobody serves; None: nothing is known."""
    return _tables().get("instead", {}).get(path)


def distribution_of_component(kind: str, name: str) -> str | None:
    """Return which distribution of ours gives the component; None: none of ours does."""
    return _tables().get("components", {}).get(f"{kind}/{name}")


def distribution_of_path(path: str) -> str | None:
    """Return which distribution of ours serves the published import path."""
    return _tables().get("import_paths", {}).get(path)


def known_paths() -> tuple[str, ...]:
    """Return all published import paths that a distribution of ours serves."""
    return tuple(_tables().get("import_paths", {}))


def distribution_of_class(name: str) -> str | None:
    """Return which distribution of ours has the published class."""
    return _tables().get("classes", {}).get(name)


def distribution_of_command(name: str) -> str | None:
    """Return which distribution of ours has the command ``trinity NAME``."""
    return _tables().get("commands", {}).get(name)


def known_distributions() -> frozenset[str]:
    """Return the names of all distributions of ours that have something."""
    named = ("components", "import_paths", "classes", "commands")
    return frozenset(name for table in named for name in _tables().get(table, {}).values())


@cache
def _tables() -> dict[str, dict[str, str]]:
    import tomllib

    return tomllib.loads(Path(__file__).with_name("known_distributions.toml").read_text("utf-8"))
