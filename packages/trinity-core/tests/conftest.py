"""A place to install throw-away plugins into."""

from __future__ import annotations

import importlib.metadata
import resource
import signal
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from trinity.extend import PluginManager, set_manager
from trinity.extend.held import HELD


@dataclass
class Site:
    """A folder on the path with distributions as pip would leave them."""

    path: Path

    def plugin(
        self,
        name: str,
        source: str,
        *,
        distribution: str = "",
        version: str = "1.0",
        requires: str = "trinity-core>=0.1,<0.2",
        attribute: str = "",
        extra: dict[str, str] | None = None,
    ) -> str:
        """Write the module ``<name>_plugin`` and the metadata of its distribution."""
        distribution = distribution or f"trinity-{name}"
        module = distribution.replace("-", "_") + f"_{name}"
        (self.path / f"{module}.py").write_text(textwrap.dedent(source))
        about = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {distribution}\nVersion: {version}\n"
            + (f"Requires-Dist: {requires}\n" if requires else "")
        )
        (about / "entry_points.txt").write_text(
            f"[trinity.plugins]\n{name} = {module}{attribute}\n"
        )
        for file, text in (extra or {}).items():
            (about / file).write_text(text)
        return module

    def module(self, name: str, source: str) -> None:
        """Write a further module."""
        (self.path / f"{name}.py").write_text(textwrap.dedent(source))

    def discover(self, **switches) -> PluginManager:
        """Return a manager of these distributions and no others."""
        found = importlib.metadata.distributions(path=[str(self.path)])
        entry_points = [point for distribution in found for point in distribution.entry_points]
        return PluginManager.discover(**{"env": {}, "entry_points": entry_points} | switches)


@contextmanager
def no_file_beyond(num_bytes: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes inside, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def full_beyond():
    """Return a context manager: :func:`no_file_beyond`."""
    return no_file_beyond


@pytest.fixture
def builtin_only() -> Iterator[PluginManager]:
    """Leave out what else is installed: messages list what there is."""
    with _only("builtin") as manager:
        yield manager


@pytest.fixture
def all_algorithms() -> Iterator[PluginManager]:
    """Leave out what else is installed than the core and the algorithms."""
    with _only("builtin", "algorithms") as manager:
        yield manager


@contextmanager
def _only(*plugins: str) -> Iterator[PluginManager]:
    found = importlib.metadata.entry_points(group="trinity.plugins")
    manager = PluginManager.discover(
        env={}, entry_points=[one for one in found if one.name in plugins]
    )
    before = set_manager(manager)
    yield manager
    set_manager(before)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    modules, held, finders = set(sys.modules), HELD.copy(), list(sys.meta_path)
    before = set_manager(None)
    yield Site(folder)
    set_manager(before)
    HELD.restore(held)
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        if "trinity_" in name or str(getattr(sys.modules[name], "__file__", "")).startswith(
            str(tmp_path)
        ):
            del sys.modules[name]


DULL = """
    from trinity.extend import hookimpl

    TRINITY_PLUGIN_API = 1

    @hookimpl
    def trinity_workflows():
        return {"dull": "dull_parts:Dull"}
"""


@pytest.fixture
def dull(site: Site) -> Site:
    """A site with one good plugin, ``dull``, that gives the workflow ``dull``."""
    site.plugin("dull", DULL)
    site.module("dull_parts", "class Dull:\n    '''Does nothing.'''\n")
    return site


@pytest.fixture
def dull_source() -> str:
    return DULL
