"""The kit tests itself with its own fixtures, and with a plugin full of mistakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from trinity.extend.checks import Result, plan
from trinity_testing.fixtures import no_discovery, throwaway_plugin

__all__ = ["no_discovery", "throwaway_plugin"]

WRONG = Path(__file__).parent / "wrong_plugin"


@pytest.fixture
def wrong_results(throwaway_plugin: Callable) -> Callable[..., list[Result]]:
    """Return a function that runs checks over one component of the plugin full of mistakes."""
    names = ["wrong_plugin.py", *sorted(f.name for f in WRONG.glob("wrong_*_parts.py"))]
    manager = throwaway_plugin("wrong", {name: (WRONG / name).read_text() for name in names})

    def results(key: str, *, args: dict | None = None) -> list[Result]:
        group = key.partition("/")[0]
        given = {key: args} if args is not None else None
        cases = plan("wrong", manager, ids=[group, "component"], args=given)
        return [case.run() for case in cases if case.component == key]

    return results
