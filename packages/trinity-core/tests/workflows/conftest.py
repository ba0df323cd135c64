"""What the tests of environments in processes share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """Let processes import the small environments that stand beside the tests."""
    monkeypatch.syspath_prepend(Path(__file__).parent)


@pytest.fixture
def is_running() -> Callable[[int], bool]:
    """Return a function that says whether a process has not ended."""
    return _is_running


@pytest.fixture
def until() -> Callable[..., bool]:
    """Return a function that waits for a condition, and says whether it came true."""

    def wait(condition: Callable[[], bool], *, within_s: float = 10.0) -> bool:
        limit = time.monotonic() + within_s
        while not condition() and time.monotonic() < limit:
            time.sleep(0.01)
        return condition()

    return wait


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
