"""Games and engines for the tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from trinity.common.workflows.env_pool import EnvPool
from trinity_envs_alfworld.env import ENGINE
from trinity_envs_alfworld.failures import as_clear_error
from trinity_envs_alfworld.translations import GameFile

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


@pytest.fixture
def begin_here() -> Callable[..., None]:
    """Return a function that begins a game in a copy of this process, which has textworld.

    A process that starts from nothing takes a second; what is "fast" changes textworld for all.
    """
    import textworld.envs.pddl  # noqa: F401

    def begin(path: Path, *, fast: bool) -> None:
        copies = ProcessPoolExecutor(1, mp_context=get_context("fork"))
        with as_clear_error(f"load of {path}"), copies:
            copies.submit(_begin, path, fast=fast).result()

    return begin


def _begin(path: Path, *, fast: bool) -> None:
    from trinity_envs_alfworld.worker import AlfworldEngine

    engine = AlfworldEngine(fast=fast)
    engine.load(GameFile(str(path), path.stat().st_mtime_ns))
    engine.reset()
