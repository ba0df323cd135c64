"""What every test of the repository may use."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import sys
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from trinity.extend.held import HELD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trinity.runtime.ray.cluster import Cluster

# A shell that runs the tests in the background makes them, and what they start, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A processor that others use too makes examples slowly; that is no fault of the code.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

if find_spec("trinity_envs_alfworld") is None:  # its engine is compiled: nox -s alfworld
    collect_ignore = ["plugins/trinity-envs-alfworld"]

# What is imported to collect the tests stays: to look through it again and again takes seconds.
gc.disable()

MESSAGES = Path(__file__).parent / "tests" / "golden" / "messages"

DRAWING = {"test_plots.py", "test_local_run.py"}  # other tests need no picture of their run

PYTHONPATH = os.environ.get("PYTHONPATH", "")  # before a test puts its plugins there


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give all files that join the one Ray of a process to the same: starting it takes 12 CPU s.

    Not where the many tests of Ray are meant: they would wait for each other.
    """
    from xdist.scheduler import LoadFileScheduling

    class RayInOneProcess(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "ray" if joins_ray(file) else file

    is_ours = config.option.dist == "loadfile" and "not acceptance" in config.option.markexpr
    return RayInOneProcess(config, log) if is_ours else None


@cache
def joins_ray(file: str) -> bool:
    """Return whether tests of the file use the one Ray."""
    return "ray_cluster" in (Path(__file__).parent / file).read_text(encoding="utf-8")


def pytest_collection_finish() -> None:
    """Look for garbage from here on, among what tests make."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _classes_in_hand(request: pytest.FixtureRequest) -> Iterator[None]:
    """Show a test only what its own module registered by decorators; forget what it adds."""
    before = HELD.copy()
    own = request.module.__name__
    HELD.restore({k: e for k, e in before.items() if e.owner or e.value.__module__ == own})
    yield
    HELD.restore(before)


@pytest.fixture(autouse=True)
def _log_of_nobody_else() -> Iterator[None]:
    """Fail a test that leaves a handler at our loggers: it would speak in the tests after it."""
    logger = logging.getLogger("trinity")
    before = list(logger.handlers)
    yield
    left = [handler for handler in logger.handlers if handler not in before]
    for handler in left:
        logger.removeHandler(handler)
    assert not left, f"left at the logger of trinity: {left}"


@pytest.fixture(autouse=True)
def _plots_are_empty_files(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spare the many runs of the tests a quarter of a second of drawing each."""
    plots = sys.modules.get("trinity.runtime.record.plots")
    if plots is None or request.path.name in DRAWING:
        yield
        return
    with mock.patch.object(plots, "_draw", _empty_file):
        yield


def _empty_file(path: Path, *_: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Cluster]:
    """Return the one Ray of all tests: a run in this process joins it, one in another may.

    A process that is to join gets ``RAY_ADDRESS=ray_cluster.address``; the token it inherits.
    """
    from trinity.common.config import Config
    from trinity.runtime.environment import environment
    from trinity.runtime.ray.cluster import cluster

    with ExitStack() as running:
        with environment({"PYTHONPATH": PYTHONPATH}):  # Ray hands it to each worker
            found = running.enter_context(cluster(Config(), say=lambda _: None))
        yield found


@pytest.fixture
def golden() -> Callable[..., None]:
    """Return a function that compares a text with the one of its name.

    ``config_no_workflow`` stands in ``tests/golden/messages/config.txt``, one file a family, after
    a line with its name. Keyword arguments name what changes from run to run: ``golden(text,
    "run_no_file", TMP=tmp_path)`` compares with ``<TMP>`` in its place.
    """

    def compare(text: str, name: str, **changing: object) -> None:
        for label, value in changing.items():
            text = text.replace(str(value), f"<{label}>")
        path = MESSAGES / f"{name.partition('_')[0]}.txt"
        texts = golden_texts(path)
        if os.environ.get("TRINITY_UPDATE_GOLDEN") == "1":
            texts[name] = text.rstrip()
            parts = [f"===== {key} =====\n{texts[key]}\n" for key in sorted(texts)]
            path.write_text("\n".join(parts), encoding="utf-8")
        assert name in texts, f"{path} lacks {name}; write it with: nox -s golden"
        assert text.rstrip() == texts[name], (
            f"{name} in {path} differs; if it is meant, run: nox -s golden"
        )

    return compare


def golden_texts(path: Path) -> dict[str, str]:
    """Return the texts of one file, by name."""
    if not path.exists():
        return {}
    parts = re.split(r"^===== (\w+) =====\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.rstrip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
