"""Games and engines for the tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trinity.common.workflows.env_pool import EnvPool
from trinity_envs_alfworld.env import ENGINE

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with two games to train on and one of each other split."""
    from tiny_game import a_game, write_game

    root = tmp_path_factory.mktemp("alfworld")
    write_game(root, trial=1)
    write_game(root, trial=2, **a_game(num_shelves=3, num_mugs=2))
    write_game(root, split="valid_seen", trial=3)
    write_game(root, split="valid_unseen", trial=4)
    return root


@pytest.fixture(scope="session")
def engines() -> Iterator[EnvPool]:
    """Return processes with engines, shared by all tests."""
    pool = EnvPool(ENGINE, arguments={"fast": True})
    yield pool
    pool.close()
