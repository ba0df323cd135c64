"""The install lines: which distribution of ours has a component or a published import path."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = [
    "distribution_of_class",
    "distribution_of_component",
    "distribution_of_path",
    "distribution_of_tool",
    "install_line",
    "known_distributions",
    "known_paths",
]


def install_line(distribution: str) -> str:
    """Return the command that installs a distribution.

    >>> install_line("trinity-testing")
    'python -m pip install trinity-testing'
    """
    return f"python -m pip install {distribution}"


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


def distribution_of_tool(name: str) -> str | None:
    """Return which distribution of ours has the tool."""
    return _tables().get("tools", {}).get(name)


def known_distributions() -> frozenset[str]:
    """Return the names of all distributions of ours that have something."""
    return frozenset(name for table in _tables().values() for name in table.values())


@cache
def _tables() -> dict[str, dict[str, str]]:
    import tomllib

    return tomllib.loads(Path(__file__).with_name("known_distributions.toml").read_text("utf-8"))
